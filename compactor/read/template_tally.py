"""Sums the rows of each template, in bounded memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from compactor.read.read_reports import TemplateCount

_MAX_TEMPLATES: Final = 100_000
_MAX_BYTES: Final = 64 << 20
"""Drop rare templates beyond this number, or beyond this size of templates and examples."""
EXAMPLE_CHARACTERS: Final = 1_000
_MARKS: Final = re.compile(r"(\\*)(<[n*]>|[\x11\x12])")
_SHOWN: Final = {"\x11": "<n>", "\x12": "<*>"}


class TemplateTally:
    """Rows by template so far. Drops rare templates when there are too many."""

    def __init__(self) -> None:
        self._found: dict[str, list[Any]] = {}
        """Rows and example of each template."""
        self._characters = 0
        self.other_rows = 0

    def add(self, counts: dict[str, tuple[int, str]]) -> None:
        """Adds the rows of each template, with an example text, which may be empty."""
        for stored, (rows, example) in counts.items():
            template = _without_words(stored)
            known = self._found.setdefault(template, [0, example])
            if not known[0]:
                self._characters += len(template) + len(example)
            elif example and not known[1]:
                known[1] = example
                self._characters += len(example)
            known[0] += rows
        if len(self._found) > _MAX_TEMPLATES or self._characters > _MAX_BYTES:
            self._drop_rare()

    def has_example(self, template: str) -> bool:
        return bool(self._found.get(_without_words(template), (0, ""))[1])

    def sorted(self, total: int) -> tuple[TemplateCount, ...]:
        """Returns the templates, most frequent first. total: number of non-null rows."""
        return tuple(
            TemplateCount(_MARKS.sub(_shown, template), rows, rows / total, example)
            for template, (rows, example) in self._by_rows()
        )

    def _by_rows(self) -> Sequence[tuple[str, list[Any]]]:
        return sorted(self._found.items(), key=lambda item: (-item[1][0], item[0]))

    def _drop_rare(self) -> None:
        """Keeps at most the most frequent half, within the size limit."""
        kept: dict[str, list[Any]] = {}
        characters, room = 0, _MAX_TEMPLATES // 2
        for template, (rows, example) in self._by_rows():
            size = len(template) + len(example)
            if len(kept) < room and characters + size <= _MAX_BYTES // 2:
                kept[template] = [rows, example]
                characters += size
            else:
                self.other_rows += rows
        self._found, self._characters = kept, characters


def _without_words(template: str) -> str:
    """Replaces the mark of word variables by that of other variables, since both are shown alike."""
    return template.replace("\x13", "\x12")


def _shown(found: re.Match[str]) -> str:
    """Renders a variable's mark; escapes text that looks like one, and doubles the backslashes before it."""
    before, mark = found.groups()
    return before * 2 + (_SHOWN.get(mark) or "\\" + mark)
