"""The functions of rule expressions: from canonical JSON texts to others, null where there is no result."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa

from compactor.entities.moments import instants
from compactor.entities.texts import TEXT, canonical, is_string, quoted, texts_of, unquoted
from lsm_fragment import compute as pc
from lsm_fragment.arrays.joining import with_nulls_of
from lsm_fragment.arrays.types import MAX_OFFSET_32

Change = Callable[[pa.Array], pa.Array]

_MAX_PATTERN: Final = 1_000
"""Keeps patterns far below the size that RE2 refuses."""


class Function(NamedTuple):
    """A function of one expression, with parameters before it."""

    made: Callable[..., Change]
    """Called with the parameters. Raises `ValueError` for those that the function can't have."""
    parameters: tuple[type, ...] = ()
    min_parameters: int = 0
    example: str = ""
    """Call with parameters, for errors."""


def text_of(texts: pa.Array) -> pa.Array:
    """Returns strings as they are, and the shortest text of numbers, without a fraction of zero."""
    if is_string(texts).all():
        return texts
    is_number = pc.match_substring_regex(texts, "^-?[0-9]")
    shortest = pc.replace_substring_regex(texts, r"\.0$", "")
    numbers = pc.if_else(is_number, quoted(shortest), pa.scalar(None, TEXT))
    return pc.if_else(pa.array(is_string(texts)), texts, numbers)


def fits_of(pattern: str) -> Change:
    """Returns the function that tells which strings and numbers fit a pattern with `*` and `?`.

    Raises `ValueError` for a pattern that is too long.
    """
    _check_length(pattern)
    parts = {"*": ".*", "?": "."}
    regex = "".join(parts.get(mark) or _escaped(mark) for mark in pattern)
    whole = rf"(?s)\A(?:{regex})\z"
    return lambda texts: pc.fill_null(
        pc.match_substring_regex(unquoted(text_of(texts)), whole), False
    )


def _escaped(mark: str) -> str:
    return mark if mark.isalnum() or ord(mark) > 127 else rf"\x{{{ord(mark):x}}}"


def _check_length(pattern: str) -> None:
    if len(pattern) > _MAX_PATTERN:
        raise ValueError(f"the pattern is longer than {_MAX_PATTERN:,} characters")


def _of_strings(change: Change) -> Callable[[], Change]:
    return lambda: _string_function(change)


def _string_function(change: Change) -> Change:
    """Makes a function of JSON strings and numbers; other values have no result."""
    return lambda texts: quoted(change(unquoted(text_of(texts))))


def _string(texts: pa.Array) -> pa.Array:
    """Converts numbers, booleans, lists and objects to their JSON text."""
    return pc.if_else(pa.array(is_string(texts)), texts, quoted(texts))


def _digits(strings: pa.Array) -> pa.Array:
    return _unless_empty(pc.replace_substring_regex(strings, "[^0-9]+", ""))


def _unless_empty(strings: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(strings, ""), pa.scalar(None, TEXT), strings)


def _substring(start: int, end: int | None = None) -> Change:
    first, last = _place(start), None if end is None else _place(end)
    return _string_function(lambda strings: pc.utf8_slice_codeunits(strings, first, last))


def _place(number: int) -> int:
    """Returns a place that Arrow can count, and that no more characters are before or behind."""
    return max(-MAX_OFFSET_32, min(number, MAX_OFFSET_32))


def _replace(old: str, new: str) -> Change:
    if not old:
        raise ValueError("the text to replace is empty")
    return _string_function(lambda strings: pc.replace_substring(strings, old, new))


def _strip(characters: str | None = None) -> Change:
    if characters is None:
        return _string_function(pc.utf8_trim_whitespace)
    if not characters:
        raise ValueError("there are no characters to strip")
    return _string_function(lambda strings: pc.utf8_trim(strings, characters))


def _regex(pattern: str) -> Change:
    """Extracts the first match of a regular expression of RE2, or the first group of it."""
    # Imported here, since the language of expressions takes a tenth of a second to import.
    from compactor.predicate.expressions.texts import regexp_extract

    def extract(strings: pa.Array, group: int) -> pa.Array:
        return regexp_extract(strings, pa.scalar(pattern), pa.scalar(group))

    _check_length(pattern)
    try:
        extract(pa.array([""]), 0)
    except pa.ArrowInvalid as error:
        raise ValueError(str(error).splitlines()[0]) from None
    try:
        extract(pa.array([""]), 1)
    except pa.ArrowInvalid:
        return _string_function(lambda strings: _unless_empty(extract(strings, 0)))
    return _string_function(lambda strings: _unless_empty(extract(strings, 1)))


_MARKS: Final = r"[\x{300}-\x{36f}]+"
_LETTERS: Final = {
    "ß": "ss", "ẞ": "SS", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L",
    "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "þ": "th", "Þ": "TH", "ħ": "h", "Ħ": "H", "\u0131": "i",
}  # fmt: skip
"""Letters that Unicode does not take apart."""


def _unaccent(strings: pa.Array) -> pa.Array:
    """Takes off accents, and writes other letters of Latin alphabets by those of ASCII."""
    if not pc.any(pc.match_substring_regex(strings, r"[^\x00-\x7f]")).as_py():
        return strings
    bare = pc.replace_substring_regex(pc.utf8_normalize(strings, "NFKD"), _MARKS, "")
    plain = reduce(lambda s, pair: pc.replace_substring(s, *pair), _LETTERS.items(), bare)
    return pc.utf8_normalize(plain, "NFKC")


_raws: Final = msgspec.json.Decoder(list[msgspec.Raw])
_INTEGER: Final = r"^[+-]?[0-9]{1,300}$"
_NUMBER: Final = r"^[+-]?[0-9]{1,300}(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?$"


def _integer(texts: pa.Array) -> pa.Array:
    """Converts integers, texts of integers, and integral floats up to 2^53."""
    found = _numerals(texts, _INTEGER)
    looks = pc.match_substring_regex(texts, r"^-?[0-9]+\.[0-9]+$")
    numbers = pc.if_else(looks, texts, pa.scalar(None, TEXT))
    whole = pc.if_else(_is_whole(numbers.cast(pa.float64())), numbers, pa.scalar(None, TEXT))
    found = pc.coalesce(found, pc.replace_substring_regex(whole, r"\.0*$", ""))
    return canonical(_without_zeros(found))


def _is_whole(numbers: pa.Array) -> pa.Array:
    return pc.and_(
        pc.equal(numbers, pc.trunc(numbers)), pc.less_equal(pc.abs(numbers), float(1 << 53))
    )


def _float(texts: pa.Array) -> pa.Array:
    """Converts numbers and numeric texts to doubles; out-of-range values have no result."""
    numbers = _without_zeros(_numerals(texts, _NUMBER)).cast(pa.float64())
    numbers = pc.add(pc.if_else(pc.is_finite(numbers), numbers, None), 0.0)  # -0.0 becomes 0.0
    found = texts_of(_raws.decode(msgspec.json.encode(numbers.to_pylist())))
    return with_nulls_of(numbers, found)


def _numerals(texts: pa.Array, pattern: str) -> pa.Array:
    """Returns the numbers and strings that match the pattern, else null."""
    plain = pc.if_else(pa.array(is_string(texts)), pc.utf8_trim_whitespace(_inner(texts)), texts)
    return pc.if_else(pc.match_substring_regex(plain, pattern), plain, pa.scalar(None, TEXT))


def _inner(texts: pa.Array) -> pa.Array:
    strings = pc.if_else(pa.array(is_string(texts)), texts, pa.scalar(None, TEXT))
    return unquoted(strings)


def _without_zeros(numerals: pa.Array) -> pa.Array:
    """Strips plus signs and leading zeros, which JSON lacks."""
    return pc.replace_substring_regex(numerals, r"^(?:\+|(-))?0*([0-9])", r"\1\2")


FUNCTIONS: Final[dict[str, Function]] = {
    "lower": Function(_of_strings(pc.utf8_lower)),
    "upper": Function(_of_strings(pc.utf8_upper)),
    "trim": Function(_of_strings(pc.utf8_trim_whitespace)),
    "normalize": Function(_of_strings(lambda strings: pc.utf8_normalize(strings, "NFKC"))),
    "unaccent": Function(_of_strings(_unaccent)),
    "digits": Function(_of_strings(_digits)),
    "timestamp": Function(_of_strings(instants)),
    "strip": Function(_strip, (str,), 0, '[strip, "0", a.x]'),
    "substring": Function(_substring, (int, int), 1, "[substring, 0, 5, a.x]"),
    "replace": Function(_replace, (str, str), 2, '[replace, "-", "", a.x]'),
    "regex": Function(_regex, (str,), 1, '[regex, "[0-9]{5}", a.x]'),
    "string": Function(lambda: _string),
    "integer": Function(lambda: _integer),
    "float": Function(lambda: _float),
}
