"""Reads and writes lists of names such as `service,"a,b",time:desc`.

Quotes are those of SQL: a name that has a comma, a colon or a quote, or white space at its ends, stands in
double quotes, and a quote within them is doubled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

_MAX_LISTED: Final = 50
_QUOTED: Final = re.compile(r'"((?:[^"]|"")*)"')
_NEEDS_QUOTES: Final = re.compile(r'[,:"]|^\s|\s$|^$')


def quoted(name: str) -> str:
    """Returns the name as `parse_name` reads it, in quotes where it needs them."""
    if not _NEEDS_QUOTES.search(name):
        return name
    return in_quotes(name)


def in_quotes(name: str) -> str:
    """Returns the name in quotes, as an expression in SQL has any name."""
    return '"' + name.replace('"', '""') + '"'


def names_text(names: Iterable[str], most: int = _MAX_LISTED) -> str:
    """Returns the first names as a list that `parse_names` reads."""
    return ", ".join(map(quoted, islice(names, most)))


def split_outside_quotes(text: str, separator: str) -> list[str]:
    """Returns the parts between separators. A separator in quotes does not count; quotes stay.

    separator: one character. Quotes are quotes only where a part begins with them.
    """
    part = re.compile(rf"\s*{_QUOTED.pattern}[^{separator}]*|[^{separator}]*")
    parts, at = [], 0
    while at <= len(text):
        found = part.match(text, at)
        assert found is not None
        parts.append(found[0])
        at = found.end() + 1
    return parts


def parse_name(text: str) -> str:
    """Returns the name that a text stands for.

    Raises ValueError, which says how to write it, if there is none or its quotes do not fit.
    """
    text = text.strip()
    if not text:
        raise ValueError("a name is missing")
    if not text.startswith('"'):
        return text
    found = _QUOTED.fullmatch(text)
    if found is None:
        raise ValueError(
            f'{text}: its quotes do not fit: write a name as in "a,b", with "" for each quote in it'
        )
    return found[1].replace('""', '"')


def parse_names(text: str) -> tuple[str, ...]:
    """Returns the names of a comma-separated list. Raises ValueError as `parse_name` does."""
    try:
        return tuple(map(parse_name, split_outside_quotes(text, ",")))
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None
