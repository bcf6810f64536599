"""Functions of texts. Positions count characters from 1."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import count as numbers_from
from itertools import repeat
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as pt

from compactor.predicate.expressions.conversion import cast_value
from compactor.predicate.expressions.nested import element
from compactor.predicate.expressions.sizes import (
    MAX_TOGETHER,
    check_size,
    rows_of,
    text_bytes,
    total,
)
from lsm_fragment import compute as pc

MAX_PADDED: Final = 1_000_000
"""Limit for the length of a padded text."""
_FLAGS: Final = "cgis"
_GROUP: Final = re.compile(r"\\[0-9]")


def row_by_row(function: Callable[..., Any], dtype: pa.DataType) -> Callable[..., Any]:
    """Returns a function of arrays that calls one of Python for each row; null if an argument is null."""

    def call(*values: Any) -> Any:
        rows = next((len(value) for value in values if isinstance(value, pa.Array)), None)
        count = 1 if rows is None else rows
        columns = [
            value.to_pylist() if isinstance(value, pa.Array) else repeat(value.as_py(), count)
            for value in values
        ]
        found = [
            None if any(part is None for part in row) else function(*row)
            for row in zip(*columns, strict=True)
        ]
        result = pa.array(found, dtype)
        return result[0] if rows is None else result

    return call


def by_constants(
    fast: Callable[..., Any], slow: Callable[..., Any], suits: Callable[..., bool] = lambda *_: True
) -> Callable[..., Any]:
    """Returns a function that takes Python values for all arguments but the first and calls `fast`, if they
    are constants and suit it; else calls `slow` with arrays and scalars."""

    def call(first: Any, *others: Any) -> Any:
        if all(isinstance(other, pa.Scalar) and other.is_valid for other in others):
            values = [other.as_py() for other in others]
            if suits(*values):
                return fast(first, *values)
        return slow(first, *others)

    return call


def split(value: Any, separator: pa.Scalar) -> Any:
    """Returns the parts of texts between separators; their characters if the separator is empty."""
    if isinstance(value, pa.Scalar):
        return split(pa.repeat(value, 1), separator)[0]
    if not (mark := separator.as_py()):
        return row_by_row(list, pa.list_(pa.string()))(value)
    return pc.split_pattern(value, pattern=mark)


def digest(name: str) -> Callable[[Any], Any]:
    """Returns the function that hashes texts, as hexadecimal digits in lower case."""
    new = getattr(hashlib, name)
    return row_by_row(lambda text: new(text.encode()).hexdigest(), pa.string())


def text_of(value: Any) -> Any:
    if pt.is_nested(value.type):
        raise pa.ArrowInvalid(f"a {value.type} has no text: name its elements or fields")
    return value if pt.is_string(value.type) else cast_value(value, pa.string())


def joined(*values: Any) -> Any:
    """`||`: null if a part is null."""
    return _join(list(map(text_of, values)), null_handling="emit_null")


def concat(*values: Any) -> Any:
    return _join(_texts(values), null_handling="replace")


def _join(parts: list[Any], *, null_handling: str) -> Any:
    rows = rows_of(parts)
    check_size(sum(text_bytes(part, rows) for part in parts), rows)
    return pc.binary_join_element_wise(*parts, "", null_handling=null_handling)


def concat_ws(separator: Any, *values: Any) -> Any:
    """Joins the parts that are not null. Arrow's own way of skipping nulls loses rows without a part."""
    parts = _texts(values)
    rows = rows_of([separator, *parts])
    separators = len(parts) * text_bytes(separator, rows)
    check_size(separators + sum(text_bytes(part, rows) for part in parts), rows)
    if isinstance(separator, pa.Scalar) and separator.is_valid:
        after = [pc.binary_join_element_wise(text_of(separator), part, "") for part in parts]
        whole = pc.binary_join_element_wise(*after, "", null_handling="replace")
        return pc.utf8_slice_codeunits(whole, len(separator.as_py()))
    some = [part if isinstance(part, pa.Array) else pa.repeat(part, rows) for part in parts]
    packed = pa.StructArray.from_arrays(some, [str(place) for place in range(len(some))])
    return row_by_row(_joined_by, pa.string())(separator, packed)


def _joined_by(separator: str, parts: dict[str, str | None]) -> str:
    return separator.join(part for part in parts.values() if part is not None)


def _texts(values: tuple[Any, ...]) -> list[Any]:
    return [
        pa.scalar(None, pa.string()) if pt.is_null(value.type) else text_of(value)
        for value in values
    ]


def _substring(text: str, start: int, length: int | None = None) -> str:
    size = len(text)
    low = start - 1 if start >= 0 else size + start
    high = size if length is None else low + length
    low, high = min(low, high), max(low, high)
    return text[max(low, 0) : max(high, 0)]


substring = by_constants(
    lambda text, start, *length: pc.utf8_slice_codeunits(
        text, start - 1, *(start - 1 + size for size in length)
    ),
    row_by_row(_substring, pa.string()),
    lambda start, *length: 1 <= start < 2**31 and all(0 <= size < 2**31 for size in length),
)
left = by_constants(
    lambda text, size: pc.utf8_slice_codeunits(text, 0, size),
    row_by_row(lambda text, size: text[:size], pa.string()),
    lambda size: abs(size) < 2**31,
)
right = by_constants(
    lambda text, size: pc.utf8_slice_codeunits(text, -size),
    row_by_row(
        lambda text, size: text[max(len(text) - size, 0) :] if size >= 0 else text[-size:],
        pa.string(),
    ),
    lambda size: size != 0 and abs(size) < 2**31,
)


def _replaced(text: Any, old: str, new: str) -> Any:
    size = text_bytes(text, rows := rows_of([text]))
    if size // len(old) * len(new) > MAX_TOGETHER:
        check_size(size + total(pc.count_substring(text, old), rows) * (len(new) - len(old)), rows)
    return pc.replace_substring(text, old, new)


_replaced_length = row_by_row(
    lambda text, old, new: len(text) + (text.count(old) * (len(new) - len(old)) if old else 0),
    pa.int64(),
)
_replaced_each = row_by_row(
    lambda text, old, new: text.replace(old, new) if old else text, pa.string()
)


def _replaced_by_columns(*values: Any) -> Any:
    check_size(total(_replaced_length(*values), rows := rows_of(values)), rows)
    return _replaced_each(*values)


replace = by_constants(
    _replaced,
    _replaced_by_columns,
    lambda old, _new: old != "",
)
starts_with = by_constants(
    lambda text, part: pc.starts_with(text, part), row_by_row(str.startswith, pa.bool_())
)
ends_with = by_constants(
    lambda text, part: pc.ends_with(text, part), row_by_row(str.endswith, pa.bool_())
)
contains = by_constants(
    lambda text, part: pc.match_substring(text, part),
    row_by_row(lambda text, part: part in text, pa.bool_()),
)
strpos = row_by_row(lambda text, part: text.find(part) + 1, pa.int64())


def trimmed(whitespace: str, characters: str) -> Callable[..., Any]:
    """Returns a trimming function. whitespace, characters: names of the functions of Arrow that take off
    white space, or the characters of a second argument."""
    of_python = {"utf8_trim": str.strip, "utf8_ltrim": str.lstrip, "utf8_rtrim": str.rstrip}

    of_characters = by_constants(
        lambda text, some: getattr(pc, characters)(text, some),
        row_by_row(of_python[characters], pa.string()),
    )

    def call(text: Any, *chosen: Any) -> Any:
        return of_characters(text, *chosen) if chosen else getattr(pc, whitespace)(text)

    return call


def _part(text: str, separator: str, number: int) -> str:
    parts = text.split(separator) if separator else list(text)
    place = number - 1 if number > 0 else len(parts) + number
    return parts[place] if number and 0 <= place < len(parts) else ""


def _constant_part(text: Any, separator: str, number: int) -> Any:
    part = element(pc.split_pattern(text, separator), pa.scalar(number))
    return pc.if_else(pc.is_valid(text), pc.fill_null(part, ""), None)


split_part = by_constants(
    _constant_part,
    row_by_row(_part, pa.string()),
    lambda separator, _number: separator != "",
)


def padded(*, is_left: bool) -> Callable[..., Any]:
    def pad(text: str, size: int, fill: str = " ") -> str:
        if size > MAX_PADDED:
            raise pa.ArrowInvalid(
                f"a text is padded to at most {MAX_PADDED} characters, not {size}"
            )
        missing = size - len(text)
        if missing <= 0:
            return text[: max(size, 0)]
        if not fill:
            raise pa.ArrowInvalid("a text cannot be padded with an empty text")
        more = (fill * (missing // len(fill) + 1))[:missing]
        return more + text if is_left else text + more

    def call(text: Any, size: Any, *fill: Any) -> Any:
        sizes = pc.min_element_wise(pc.max_element_wise(size, 0), MAX_PADDED)
        check_size(total(sizes, rows := rows_of([text, size, *fill])), rows)
        return each(text, size, *fill)

    each = row_by_row(pad, pa.string())
    return call


def regexp_matches(text: Any, pattern: pa.Scalar, flags: pa.Scalar | None = None) -> Any:
    return pc.match_substring_regex(text, _with_flags(pattern, flags))


def regexp_replace(
    text: Any, pattern: pa.Scalar, new: pa.Scalar, flags: pa.Scalar | None = None
) -> Any:
    """Replaces the first match, or all with flag `g`."""
    limit = None if flags is not None and "g" in (flags.as_py() or "") else 1
    whole = _with_flags(pattern, flags)
    _check_replacement(whole, new.as_py())
    _check_growth(text, whole, new.as_py(), limit)
    return pc.replace_substring_regex(text, whole, new.as_py(), max_replacements=limit)


def regexp_extract(text: Any, pattern: pa.Scalar, group: pa.Scalar | None = None) -> Any:
    """Returns the match, or a group of it; an empty text without a match."""
    number = 0 if group is None else group.as_py()
    named, groups = _with_named_groups(_checked(pattern.as_py()))
    if not 0 <= number <= groups:
        raise pa.ArrowInvalid(f"the pattern has {groups} groups, and no group {number}")
    parts = pc.extract_regex(text, f"(?P<g0>{named})")
    found = pc.fill_null(pc.struct_field(parts, [number]), "")
    return pc.if_else(pc.is_valid(text), found, None)


def _with_flags(pattern: pa.Scalar, flags: pa.Scalar | None) -> str:
    given = "" if flags is None else flags.as_py()
    if odd := set(given) - set(_FLAGS):
        raise pa.ArrowInvalid(f"no flag {min(odd)!r}; flags are: {', '.join(_FLAGS)}")
    inner = "".join(flag for flag in "is" if flag in given)
    return _checked(f"(?{inner}){pattern.as_py()}" if inner else pattern.as_py())


@lru_cache(maxsize=256)
def _checked(pattern: str) -> str:
    """Returns a regular expression of RE2. Raises `pa.ArrowInvalid` for another text."""
    pc.match_substring_regex(pa.array([""]), pattern)
    return pattern


def _check_growth(text: Any, pattern: str, new: str, limit: int | None) -> None:
    size = text_bytes(text, rows := rows_of([text]))
    size *= 1 + len(_GROUP.findall(new))
    places = rows if limit == 1 else size + rows
    if size + places * len(new) > MAX_TOGETHER:
        if limit is None:
            places = total(pc.count_substring_regex(text, pattern), rows)
        check_size(size + places * len(new), rows)


@lru_cache(maxsize=256)
def _check_replacement(pattern: str, new: str) -> None:
    """Raises `pa.ArrowInvalid` for a replacement with a group that the pattern lacks. The alternative of
    nothing matches the empty text: Arrow checks a replacement when it is first needed."""
    pc.replace_substring_regex(pa.array([""]), f"|{pattern}", new)


_TOKEN: Final = re.compile(
    r"\\Q.*?(?:\\E|$)|\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]|\(\?P?<\w+>|\(\?|\(", re.DOTALL
)


def _with_named_groups(pattern: str) -> tuple[str, int]:
    """Names all groups of a pattern, as Arrow needs them. Returns their number, too."""
    numbers: Iterator[int] = numbers_from(1)

    def name(token: re.Match[str]) -> str:
        is_group = token[0] == "(" or (token[0].startswith("(?") and token[0].endswith(">"))
        return f"(?P<g{next(numbers)}>" if is_group else token[0]

    return _TOKEN.sub(name, pattern), next(numbers) - 1
