"""Reads and writes lists of names such as `service,"a,b",time:desc`.

Quoting is that of SQL: a name with a comma, a colon, a quote, or white space at its ends is in double quotes,
and quotes within it are doubled.
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
    """Formats a name for `parse_name`, in quotes if it needs them."""
    if not _NEEDS_QUOTES.search(name):
        return name
    return in_quotes(name)


def in_quotes(name: str) -> str:
    """Returns the name in quotes, as any name may be in an SQL expression."""
    return '"' + name.replace('"', '""') + '"'


def names_text(names: Iterable[str]) -> str:
    """Formats the first names as a list for `parse_names`."""
    return ", ".join(map(quoted, islice(names, _MAX_LISTED)))


def split_outside_quotes(text: str, separator: str) -> list[str]:
    """Splits a text at separators outside quotes; quotes are kept.

    separator: one character. Only a quote at the beginning of a part opens quotes.
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
    """Parses a name.

    Raises ValueError, which says how to write it, for a missing name or unbalanced quotes.
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
    """Parses a comma-separated list of names. Raises ValueError as `parse_name` does."""
    try:
        return tuple(map(parse_name, split_outside_quotes(text, ",")))
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None
