"""Fills the texts of a pipeline's file from the environment, and hides the values in what is printed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from compactor.common.message import Message, Setting
from compactor.errors import CompactorError
from compactor.settings.document import Document
from compactor.settings.mistakes import Place

_REFERENCE: Final = re.compile(
    r"(?P<escape>\$\$\{)|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^{}]*))?\}"
    r"|(?P<odd>\$\{)"
)
_MIN_HIDDEN: Final = 4
"""Hide shorter texts only where they stand in quotes: they may be a part of any word."""
_CUT: Final = re.compile(r"(?=\.\.\.|…)")
"""Finds where a text ends that a message has only the beginning of."""
_QUOTED: Final = re.compile(r"""'((?:[^']|'')+)'|"((?:[^"]|"")+)\"""")


class Variables:
    """The variables that a pipeline's file refers to, with their values."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        """What to show instead of each text that came from the environment."""
        self._hidden: re.Pattern[str] | None = None

    def fill(self, document: Document) -> None:
        """Replaces `${NAME}` and `${NAME:-default}` in all texts of a document. Raises `ConfigError`."""
        document.root = self._filled(document.root, (), document)
        self._shown = {
            spelling: reference
            for value, reference in self._shown.items()
            for spelling in _spellings(value)
        }
        longest_first = sorted(filter(None, self._shown), key=len, reverse=True)
        if longest_first:
            self._hidden = re.compile("|".join(map(_pattern, longest_first)))

    def hide(self, text: str) -> str:
        """Returns the text with references in place of values from the environment."""
        if self._hidden is None:
            return text
        return self._hidden.sub(lambda found: self._shown[found[0]], self._without_beginnings(text))

    def hide_in(self, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Returns records for JSON with references in their texts, but not in their keys."""
        hidden: list[dict[str, Any]] = self._hidden_in(records)
        return hidden

    def _hidden_in(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._hidden_in(part) for key, part in value.items()}
        if isinstance(value, list):
            return list(map(self._hidden_in, value))
        return self.hide(value) if isinstance(value, str) else value

    def _without_beginnings(self, text: str) -> str:
        """Returns the text with references in place of beginnings of values that are cut."""
        *cut, last = _CUT.split(text)
        return "".join([*map(self._without_end, cut), last])

    def _without_end(self, text: str) -> str:
        """Returns the text with a reference in place of a value's beginning at its end."""
        for value, reference in self._shown.items():
            for size in range(min(len(value) - 1, len(text)), _MIN_HIDDEN - 1, -1):
                if text.endswith(value[:size]):
                    return text[:-size] + reference
        return text

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Hides the values in the messages of errors that the block raises."""
        try:
            yield
        except CompactorError as error:
            error.reword(self._without_values)
            raise

    def _without_values(self, message: Message) -> Message:
        parts = (part if isinstance(part, Setting) else self.hide(part) for part in message.parts)
        return Message(*parts)

    def _filled(self, value: Any, place: Place, document: Document) -> Any:
        if isinstance(value, dict):
            return {k: self._filled(v, (*place, k), document) for k, v in value.items()}
        if isinstance(value, list):
            return [self._filled(v, (*place, n), document) for n, v in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        names: list[str] = []

        def of(found: re.Match[str]) -> str:
            if found["escape"]:
                return "${"
            if found["odd"]:
                raise document.fail(
                    place,
                    f"{value!r}: write a variable as ${{NAME}} or ${{NAME:-default}}, and $${{ for the "
                    "characters themselves",
                )
            return self._value(found, place, document, names)

        def pasted(text: str) -> str:
            known = len(names)
            filled = _REFERENCE.sub(of, text)
            if len(names) > known:
                self._shown[filled] = text
            return filled

        for text in _quoted_in(value):
            if not any(found["odd"] for found in _REFERENCE.finditer(text)):
                pasted(text)
        return pasted(value)

    def _value(
        self, found: re.Match[str], place: Place, document: Document, names: list[str]
    ) -> str:
        name, default = found["name"], found["default"]
        value = os.environ.get(name)
        if default is not None and not value:
            return str(default)
        if value is None:
            raise document.fail(
                place,
                f"${{{name}}} is not set in the environment: set it, or give a default, as in "
                f"${{{name}:-value}}",
            )
        names.append(name)
        for part in (value, *_quoted_in(value)):
            self._shown.setdefault(part, f"${{{name}}}")
        return value


def _quoted_in(text: str) -> list[str]:
    """Returns the texts and quoted names in SQL, which is also shown in another form with these."""
    return ["".join(found) for found in _QUOTED.findall(text)]


def _spellings(value: str) -> set[str]:
    """Returns a text as it is, and within quotes as Python, SQL and JSON have it."""
    found = {value.replace("'", "''")}
    unescaped = value.replace("''", "'"), value.replace('""', '"')  # as SQL has it
    for text in (value, *unescaped):
        python = repr(text + '"')[1:-2]  # in single quotes, those of the text are escaped
        found |= {text, python, python.replace("\\'", "'")}
        found |= {json.dumps(text, ensure_ascii=is_ascii)[1:-1] for is_ascii in (False, True)}
    return found


def _pattern(text: str) -> str:
    """Returns the pattern that finds a text to be hidden."""
    escaped = re.escape(text)
    return escaped if len(text) >= _MIN_HIDDEN else rf"(?<=['\"]){escaped}(?=['\"])"
