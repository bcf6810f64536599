"""Reads settings that users write as YAML or JSON, with line numbers for error messages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from compactor.errors import ConfigError
from compactor.settings.arguments import with_checks
from compactor.settings.mistakes import Place, all_mistakes, shown_place, with_others

_MAX_VALUES: Final = 100_000
"""Refuse documents with more values; each use of an alias (`*name`) counts its values again."""
_LAST_COMMA: Final = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[\]}])', re.DOTALL)
"""Matches strings, to pass over them, and commas before a closing bracket."""
_Model = TypeVar("_Model", bound=BaseModel)


_FastParser: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(yaml.SafeLoader):
    """A YAML loader that reads `on`, `no` and dates as texts, as in YAML 1.2."""


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":timestamp"))
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


class Document:
    """A mapping of settings, with the line of each."""

    def __init__(
        self, name: str, root: dict[str, Any], lines: dict[Place, int], what: str = ""
    ) -> None:
        """what: the subject of every error, after file and line."""
        self.name = name
        self._what = what
        self.root = root
        self._lines = lines

    @classmethod
    @with_checks
    def read(cls, path: str | PathLike[str]) -> Self:
        """Reads a file. Raises `ConfigError` naming the file, and the line where it is known."""
        name = fspath(path)
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            cause = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConfigError(f"{name}: {cause}") from None
        return cls.parse(text, name)

    @classmethod
    def parse(cls, text: str, name: str) -> Self:
        """Parses JSON if the name ends in .json, else YAML. Raises `ConfigError`."""
        is_json = name.lower().endswith(".json")
        # JSON allows tabs as space, YAML does not.
        tree, value = _parsed(text.replace("\t", " ") if is_json else text, name)
        if is_json:
            value = _json(text, name)
        document = cls(name, {}, {} if tree is None else dict(_lines(tree, set())))
        if not isinstance(value, dict):
            raise document.fail((), "this is not a mapping of names to values")
        for key in value:
            if not isinstance(key, str):
                raise document.fail((), f"{key!r} stands where a name should; put it in quotes")
        document.root = value
        return document

    def section(self, place: Place, what: str) -> Self:
        """Returns a nested mapping as a document of its own, with the lines of this one. what: as above."""
        value: Any = self.root
        for part in place:
            value = value[part]
        depth = len(place)
        lines = {at[depth:]: line for at, line in self._lines.items() if at[:depth] == place}
        return type(self)(self.name, dict(value), lines, what)

    def moved(self, root: dict[str, Any], to: Callable[[Place], Place]) -> Self:
        """Returns other values as a document, with the lines of this one. to: the new place of each value."""
        lines: dict[Place, int] = {}
        for place, line in self._lines.items():
            lines.setdefault(to(place), line)
        return type(self)(self.name, root, lines, self._what)

    def fail(self, place: Place, message: str) -> ConfigError:
        """Returns the error about a part of the document."""
        return ConfigError(f"{self.place_of(place)}: {self._what}{message}")

    def fail_at(self, place: Place, message: str) -> ConfigError:
        """Returns the error about a part of the document; the message itself names the part."""
        return self.fail(place, f"{shown_place(place)}: {message}")

    def place_of(self, place: Place) -> str:
        """Returns the file and line of a part of the document."""
        while place and place not in self._lines:
            place = place[:-1]
        return f"{self.name}, line {self._lines.get(place, 1)}"

    def as_model(self, model: type[_Model]) -> _Model:
        """Checks the settings against a model. Raises `ConfigError` naming line and field."""
        try:
            return model(**self.root)
        except ValidationError as error:
            found = [self.fail(*mistake) for mistake in all_mistakes(error, model)]
        raise with_others(found)


def _parsed(text: str, name: str) -> tuple[yaml.Node | None, Any]:
    _check_length(text, name)
    try:
        loader = _Loader(text)
        tree = loader.get_single_node()
        if tree is None:
            return None, None
        _check_size(tree, name)
        _check_commas(tree, name)
        # Before keys that `<<` merges are among those of a mapping, which may override them.
        _check_twice(tree, name)
        return tree, loader.construct_document(tree)
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        cause = str(error).splitlines()[0]
        raise ConfigError(f"{name}: not YAML: {cause}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        raise ConfigError(f"{name}{line}: not YAML: {problem}") from None


def _check_length(text: str, name: str) -> None:
    """Raises `ConfigError` for too many values before the slow parser runs over the whole text."""
    values = 0
    with suppress(yaml.YAMLError, ValueError):  # the full parser reports these
        for event in yaml.parse(text, Loader=_FastParser):
            values += isinstance(event, yaml.NodeEvent)
            if values > _MAX_VALUES:
                break
    if values > _MAX_VALUES:
        raise ConfigError(
            f"{name}: more than {_MAX_VALUES:,} values: divide it, or leave data to files"
        )


def _check_size(tree: yaml.Node, name: str) -> None:
    """Raises `ConfigError` if aliases expand the document to too many values."""
    sizes: dict[int, int] = {}

    def size_of(node: yaml.Node) -> int:
        if (known := sizes.get(id(node))) is not None:
            return known
        sizes[id(node)] = _MAX_VALUES + 1  # a node that contains itself never ends
        sizes[id(node)] = size = 1 + sum(map(size_of, _inside(node)))
        if size > _MAX_VALUES:
            line = node.start_mark.line + 1
            raise ConfigError(
                f"{name}, line {line}: more than {_MAX_VALUES:,} values, or something that contains itself; "
                "use fewer aliases"
            )
        return size

    size_of(tree)


def _check_twice(node: yaml.Node, name: str) -> None:
    """Raises `ConfigError` for the first key that a mapping has twice."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    line = key.start_mark.line + 1
                    raise ConfigError(
                        f"{name}, line {line}: {key.value!r} comes twice: leave one out"
                    )
                seen.add(key.value)
    for part in _inside(node):
        _check_twice(part, name)


def _check_commas(node: yaml.Node, name: str) -> None:
    """Raises `ConfigError` for the first text in braces that YAML divides at a comma inside parentheses, as
    in `{price: decimal(5,2)}`, which gives the name `2)` without a value."""
    if isinstance(node, yaml.MappingNode) and node.flow_style:
        parts: list[str] = []
        for key, value in node.value:
            if parts and _is_plain(key) and _is_plain(value) and not value.value:
                parts.append(key.value)
                whole = ",".join(parts)
                if whole.count(")") >= whole.count("("):
                    raise ConfigError(
                        f"{name}, line {key.start_mark.line + 1}: YAML divides {whole} at its commas: put it "
                        f'in quotes, as in "{whole}"'
                    )
            else:
                is_open = _is_plain(value) and value.value.count("(") > value.value.count(")")
                parts = [value.value] if is_open else []
    for part in _inside(node):
        _check_commas(part, name)


def _is_plain(node: yaml.Node) -> bool:
    """Returns whether a node is a text without quotes."""
    return isinstance(node, yaml.ScalarNode) and node.style is None


def _inside(node: yaml.Node) -> list[yaml.Node]:
    """Returns the keys and values of a mapping, or the elements of a list."""
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _json(text: str, name: str) -> Any:
    # Documentation often prints a comma behind the last item.
    text = _LAST_COMMA.sub(lambda found: found[1] or " ", text)
    try:
        return json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise ConfigError(f"{name}, line {line}: not JSON: {error}") from None


def _lines(node: yaml.Node, seen: set[int], place: Place = ()) -> Iterator[tuple[Place, int]]:
    """Yields place and line of every part of the file; parts repeated by an alias only once."""
    yield place, node.start_mark.line + 1
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                here = (*place, key.value)
                yield from _lines(value, seen, here)
                yield here, key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _lines(value, seen, (*place, index))
