"""Compiles patterns of lines: regular expressions with named groups, or grok.

`(?P<client>\\S+) (?P<bytes>\\d+)` and `%{IP:client} %{NUMBER:bytes:int}` mean the same. The result is an
expression of RE2, which takes linear time for every text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

import pyarrow as pa
from msgspec import Struct

from compactor.files.grok import GROK
from lsm_fragment import compute as pc

_MAX_PATTERN: Final = 10_000
_TOKEN: Final = re.compile(
    r"(?P<plain>\\.|\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\])"
    r"|%\{(?P<grok>[^{}]*)\}"
    r"|\(\?P?<(?P<name>[^<>=!][^<>]*)>"
    r"|(?P<unnamed>\((?!\?))",
    re.DOTALL,
)
_FIELD: Final = re.compile(r"\[([^\[\]]+)\]")
_TYPES: Final = {"int": pa.int64(), "float": pa.float64()}


class LinePattern(Struct, frozen=True):
    regex: str
    """Matches whole records; its groups are g0, g1, and so on."""
    names: tuple[str, ...]
    """Column names of the groups."""
    types: tuple[pa.DataType | None, ...]


class _Groups:
    """The named groups of a pattern while it is expanded."""

    def __init__(self) -> None:
        self.types: dict[str, pa.DataType | None] = {}

    def open(self, name: str, dtype: pa.DataType | None = None) -> str:
        if name in self.types:
            raise ValueError(f"the pattern gives {name!r} twice: give each column one group")
        self.types[name] = dtype
        return f"(?P<g{len(self.types) - 1}>"


def line_pattern(text: str, *, spans_lines: bool) -> LinePattern:
    """Compiles a pattern. spans_lines: whether `.` matches line breaks too. Raises `ValueError`."""
    if len(text) > _MAX_PATTERN:
        raise ValueError(f"the pattern is longer than {_MAX_PATTERN:,} characters")
    groups = _Groups()
    body = "".join(_expanded(text, groups))
    if not groups.types:
        raise ValueError(
            "the pattern names no column: name one, as in (?P<client>\\S+) or %{IP:client}"
        )
    regex = rf"{'(?s)' if spans_lines else ''}\A(?:{body})\z"
    try:
        check_regex(body)
    except ValueError as error:
        names = list(groups.types)
        shown = re.sub(r"\?P<g(\d+)>", lambda found: f"?P<{names[int(found[1])]}>", str(error))
        raise ValueError(shown) from None
    return LinePattern(regex, tuple(groups.types), tuple(groups.types.values()))


def check_regex(regex: str) -> None:
    """Raises `ValueError` with the cause unless RE2 takes the expression."""
    try:
        pc.match_substring_regex(pa.array([""]), regex)
    except pa.ArrowInvalid as error:
        cause = str(error).removeprefix("Invalid regular expression: ").splitlines()[0]
        if "perl operator" in cause:
            cause += (
                "; expressions take linear time, so looking around and atomic groups are unknown"
            )
        raise ValueError(f"the pattern is not understood: {cause}") from None


def _expanded(text: str, groups: _Groups) -> Iterator[str]:
    at = 0
    for token in _TOKEN.finditer(text):
        yield text[at : token.start()]
        at = token.end()
        if token["grok"] is not None:
            yield _of_grok(token["grok"], groups)
        elif token["name"] is not None:
            yield groups.open(token["name"])
        else:
            yield "(?:" if token["unnamed"] else token["plain"]
    yield text[at:]


def _of_grok(reference: str, groups: _Groups) -> str:
    """Returns the expression of `NAME`, `NAME:column` or `NAME:column:type`."""
    name, _, rest = reference.partition(":")
    column, _, type_name = rest.partition(":")
    if name not in GROK:
        near = get_close_matches(name, GROK, n=1)
        meant = f"; did you mean %{{{near[0]}}}?" if near else ""
        raise ValueError(f"the pattern has no known name in %{{{reference}}}{meant}")
    if type_name and type_name not in _TYPES:
        raise ValueError(f"%{{{reference}}}: no type {type_name!r}; types are int and float")
    start = "(?:"
    if column:
        start = groups.open(".".join(_FIELD.findall(column)) or column, _TYPES.get(type_name))
    return f"{start}{''.join(_expanded(GROK[name], groups))})"
