"""SQL's LIKE: `%` matches any text, `_` any character; an escaped character matches itself.

Patterns are parsed only by `parts_of`, because Arrow's `match_like` treats the escape character in a plain
prefix or suffix as a letter.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from lsm_fragment import compute as pc
from lsm_fragment import native
from lsm_fragment.arrays.buffers import binary_parts
from lsm_fragment.arrays.joining import with_nulls_of

ESCAPE: Final = "\\"
"""Default escape character, without an ESCAPE clause."""
MAX_CHARACTERS: Final = 2_000
"""Refuse longer patterns, which exceed RE2's limits, unless they are a text between two `%`."""
_SPECIAL: Final = re.compile(r"[%_\\]")
_PUNCTUATION: Final = re.compile(r"([!-/:-@\[-`{-~])")


class Wildcard(Enum):
    """A wildcard of a pattern."""

    TEXT = "%"
    CHARACTER = "_"


Parts = tuple[str | Wildcard, ...]


@lru_cache(maxsize=256)
def parts_of(pattern: str, escape: str = ESCAPE) -> Parts:
    """Splits a pattern into non-empty texts and the wildcards between them.

    Raises `ValueError` for a pattern that ends in its escape character.
    """
    parts: list[str | Wildcard] = []
    text: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None:
                raise ValueError(f"the pattern ends in its escape character, {escape!r}: double it")
            text.append(following)
        elif character in "%_":
            if text:
                parts.append("".join(text))
                text = []
            if not (character == "%" and parts and parts[-1] is Wildcard.TEXT):
                parts.append(Wildcard(character))
        else:
            text.append(character)
    return (*parts, "".join(text)) if text else tuple(parts)


def escaped(text: str) -> str:
    """Returns the pattern that matches only this text."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def checked_pattern(pattern: str, escape: str, *, ignores_case: bool) -> str:
    """Rewrites the pattern to escape character `ESCAPE`. Raises `ValueError` if it is invalid."""
    parts = parts_of(pattern, escape)
    if len(pattern) > MAX_CHARACTERS and (ignores_case or _shape(parts) is None):
        raise ValueError(
            f"the pattern has {len(pattern):,} characters, more than {MAX_CHARACTERS:,}: shorten it"
        )
    return "".join(part.value if isinstance(part, Wildcard) else escaped(part) for part in parts)


def literal_prefix(pattern: str) -> str:
    """Returns the common prefix of all matching texts."""
    first = next(iter(parts_of(pattern)), "")
    return first if isinstance(first, str) else ""


def like_each(texts: pa.Array, patterns: pa.Array, escape: str, *, ignores_case: bool) -> pa.Array:
    """Returns whether each text matches the pattern of its row; null if either is.

    Raises `pa.ArrowInvalid` for a pattern that `checked_pattern` refuses.
    """
    holds = np.zeros(len(texts), np.bool_)
    for pattern in patterns.drop_null().unique():
        try:
            checked = checked_pattern(pattern.as_py(), escape, ignores_case=ignores_case)
        except ValueError as error:
            raise pa.ArrowInvalid(str(error)) from None
        rows = np.asarray(pc.fill_null(pc.equal(patterns, pattern), False))
        some = like(texts.filter(pa.array(rows)), checked, ignores_case=ignores_case)
        holds[rows] = np.asarray(pc.fill_null(some, False))
    return with_nulls_of(patterns, with_nulls_of(texts, pa.array(holds)))


def like(texts: pa.Array, pattern: str, *, ignores_case: bool) -> pa.Array:
    """Returns whether each text matches the pattern: bool of shape (rows,); null where the text is."""
    parts = parts_of(pattern)
    shape = None if ignores_case else _shape(parts)
    if shape is None:
        flags = "(?is)" if ignores_case else "(?s)"
        return pc.match_substring_regex(texts, f"{flags}\\A{''.join(map(_regex, parts))}\\z")
    starts, text, ends = shape
    if starts and ends:
        return _contains(texts, text)
    if starts:
        return pc.ends_with(texts, text)
    return pc.starts_with(texts, text) if ends else pc.equal(texts, pa.scalar(text, texts.type))


def _contains(texts: pa.Array, word: str) -> pa.Array:
    """Returns whether each text contains a word; several times faster than `pc.match_substring`."""
    if not word:
        return with_nulls_of(texts, pa.repeat(True, len(texts)))
    offsets, data = binary_parts(texts)
    found = np.empty(len(texts), dtype=np.uint8)
    native.arrays.patterns.contain(
        offsets, native.as_bytes(data), np.frombuffer(word.encode(), dtype=np.uint8), found
    )
    return with_nulls_of(texts, pa.array(found.view(np.bool_)))


def _shape(parts: Parts) -> tuple[bool, str, bool] | None:
    """Returns (leading `%`, text, trailing `%`) of a pattern with one text; None for other patterns."""
    starts = parts[:1] == (Wildcard.TEXT,)
    rest = parts[1:] if starts else parts
    ends = rest[-1:] == (Wildcard.TEXT,)
    rest = rest[:-1] if ends else rest
    if not rest:
        return starts, "", ends
    return (starts, rest[0], ends) if len(rest) == 1 and isinstance(rest[0], str) else None


def _regex(part: str | Wildcard) -> str:
    if isinstance(part, Wildcard):
        return ".*" if part is Wildcard.TEXT else "."
    return _PUNCTUATION.sub(r"\\\1", part)
