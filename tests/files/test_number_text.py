"""The numbers of text files against Python's own parser, to the last bit."""

from __future__ import annotations

import re
import struct

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from compactor.files.number_text import plain_numbers

NUMBER = re.compile(r"[ \t]*(-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?)[ \t]*")
DIGITS = st.text("0123456789", max_size=20)
TEXTS = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "", "-", "+", " "]),
        DIGITS,
        st.sampled_from(["", "", ".", ".0", "..", ","]),
        DIGITS,
        st.sampled_from(["", "", "", "e5", "E-3", "x", " ", "e"]),
    ),
)


def expected(text: str) -> int | float | None:
    """The value of a number that needs no second look: an integer of 64 bits, or a double from at most 17
    digits."""
    found = NUMBER.fullmatch(text)
    if found is None:
        return None
    if found[2] or found[3]:
        return float(found[1])
    return int(found[1])


def parsed_all(texts: list[str]) -> pa.Array | None:
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    there = np.ones(len(texts), np.uint8)
    return plain_numbers("".join(texts).encode() + b" ", ends[:-1], ends[1:], there)


def parsed(text: str) -> int | float | None:
    array = parsed_all([text])
    return None if array is None else array[0].as_py()


@given(TEXTS)
@example("-0")
@example("-0.0")
@example("9007199254740993.5")
@example("123456789012345.6")
@example("12345678901234567")
@example("9223372036854775808")
@example("1.")
@example(".5")
def test_a_number_is_what_python_reads_or_is_left_to_it(text: str) -> None:
    found, wanted = parsed(text), expected(text)
    if wanted is None:
        assert found is None
    elif found is not None:
        assert type(found) is type(wanted)
        assert struct.pack("<d", found) == struct.pack("<d", wanted)
        assert found == wanted


@given(st.integers(-(10**15), 10**15), st.integers(0, 15))
def test_short_numbers_need_no_second_look(digits: int, places: int) -> None:
    text = f"{abs(digits):0{places + 1}d}"
    text = text[: len(text) - places] + ("." if places else "") + text[len(text) - places :]
    text = "-" * (digits < 0) + text
    if len(text) <= 17 and (places or digits):
        assert parsed(text) == expected(text)


def test_integers_beside_doubles_become_doubles() -> None:
    array = parsed_all(["1", "2.5", "-3"])
    assert array is not None
    assert array.equals(pa.array([1.0, 2.5, -3.0]))
