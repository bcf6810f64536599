"""Takes the names that a graph written as a list may have for our settings. Pure.

Such a file repeats the name of a node in its `config`, calls an output `sink`, gives the format as `type`,
the columns of a source as a list (`schema`), the branches of a route as `conditions` and `default`, and the
settings of the run in sections (`pipeline`, `error_handling`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from compactor.files.names import kind_of
from compactor.settings.document import Document
from compactor.settings.mistakes import Place

SAME_KINDS: Final = {"sink": "output"}
"""Our kinds of nodes by their other names."""
OTHER_KINDS: Final = {
    "composition": "write its nodes out",
    "cull": "declare a `correlation_key` in the sources, which sets groups with a bad row aside",
    "envelope": "write the frame by another output",
    "reshape": "compute rows by transforms and merge them",
}
"""Kinds of nodes that there are not, with what to do instead."""
_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "source": {"type": "format", "schema": "fields", "options": "csv"},
    "output": {"type": "format", "options": "csv"},
    "route": {"conditions": "branches", "default": "otherwise"},
}
_TYPES: Final = {
    "int": "BIGINT",
    "float": "DOUBLE",
    "string": "TEXT",
    "bool": "BOOLEAN",
    "date_time": "TIMESTAMP",
}
"""Types of a schema that have another name in SQL."""
_CSV: Final = {"quote_char": "quote", "has_header": "header"}
_SECTIONS: Final[Mapping[Place, str | None]] = {
    ("pipeline", "name"): None,
    ("pipeline", "memory"): "memory",
    ("error_handling", "strategy"): "on_error",
    ("error_handling", "dlq", "path"): "dead_letter",
    ("error_handling", "max_group_buffer"): "max_group_buffer",
}
"""Settings of the run by their places in sections; a name of the run is not needed."""
Fail = Callable[[str, str], NoReturn]
"""Raises the error about a setting."""


def settings_of(kind: str, config: Mapping[str, Any], fail: Fail) -> dict[str, Any]:
    """Returns the settings of a node by our names. fail: called with a setting and what is wrong with it."""
    settings = {our_name(kind, key): value for key, value in config.items() if key != "name"}
    for theirs, ours in _NAMES.get(kind, {}).items():
        if theirs in config and ours in config:
            fail(theirs, f"`{theirs}` and `{ours}` are one setting: give one of them")
    if "cxl" in config:
        fail("cxl", "`cxl` is another language: give `columns` and `filter` in SQL")
    if kind == "route" and settings.pop("mode", "exclusive") != "exclusive":
        fail("mode", "a row goes to its first branch: filter by a transform for each branch")
    if "type" in config and kind in ("source", "output"):
        _set_format(settings, config["type"])
    if kind == "source" and "schema" in config:
        settings["fields"] = _fields(config["schema"], fail)
        settings.setdefault("only_fields", "columns" not in settings)
    if isinstance(options := config.get("options"), dict):
        settings["csv"] = {_CSV.get(key, key): value for key, value in options.items()}
    if isinstance(csv := settings.get("csv"), dict) and "encoding" in csv:
        settings["encoding"] = csv.pop("encoding")
    return settings


def our_name(kind: str, setting: str) -> str:
    """Returns our name of a setting of a node."""
    return _NAMES.get(kind, {}).get(setting, setting)


def without_sections(document: Document) -> Document:
    """Returns the document with the settings of its sections at their places. Raises `ConfigError`."""
    root = dict(document.root)
    for section in dict.fromkeys(str(place[0]) for place in _SECTIONS):
        for place, value in _leaves(root.pop(section, {}), (section,)):
            if place not in _SECTIONS:
                known = ", ".join(".".join(map(str, each)) for each in _SECTIONS)
                raise document.fail_at(place, f"is not known here; known are {known}")
            if (ours := _SECTIONS[place]) is not None:
                root[ours] = value

    def moved(place: Place) -> Place:
        ours = _SECTIONS.get(place)
        return place if ours is None else (ours,)

    return document.moved(root, moved)


def _leaves(value: Any, place: Place) -> list[tuple[Place, Any]]:
    """Returns the settings in a section, with those that are mappings whole."""
    if place in _SECTIONS or not isinstance(value, dict):
        return [(place, value)]
    return [leaf for key, part in value.items() for leaf in _leaves(part, (*place, key))]


def _set_format(settings: dict[str, Any], name: Any) -> None:
    """Leaves out a format that the ending of the path tells too, with the compression."""
    path = settings.get("path")
    told = kind_of(path) if isinstance(path, str) else None
    given = kind_of(f".{name}")
    if told is not None and given is not None and told.format is given.format:
        del settings["format"]


def _fields(schema: Any, fail: Fail) -> dict[str, str]:
    """Returns the types of a list of columns."""
    fields = {}
    for column in schema if isinstance(schema, list) else [schema]:
        if not isinstance(column, dict) or set(column) != {"name", "type"}:
            fail("schema", "`schema` is a list of columns, as in `- {name: n, type: int}`")
        text = str(column["type"])
        text = text.removeprefix("nullable(").removesuffix(")") if "nullable(" in text else text
        fields[str(column["name"])] = _TYPES.get(text, text)
    return fields
