"""Which encoding a chunk gets, where a sample decides."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from format import encode
from format.encode import encode_array
from format.nodes import Encoding

ROWS = 100_000


def mostly_null(values: Sequence[str], every: int) -> pa.Array:
    """One of `every` rows has a value, the other ones are null."""
    return pa.array([None if row % every else values[row // every] for row in range(ROWS)])


@pytest.mark.parametrize("every", [1, 3, 100])
def test_values_that_recur_get_a_dictionary_however_many_nulls_are_among_them(every: int) -> None:
    values = [f"value {n * n % 101}" for n in range(ROWS)]
    assert encode_array(mostly_null(values, every)).encoding is Encoding.DICTIONARY


@pytest.mark.parametrize("every", [1, 3, 100])
def test_values_that_differ_are_found_out_by_a_sample_however_many_nulls_are_among_them(
    every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes, lengths = encode._codes, list[int]()

    def noted(array: pa.Array, most: int) -> object:
        lengths.append(len(array))
        return codes(array, most)

    monkeypatch.setattr(encode, "_codes", noted)
    values = [f"{n * n % 1_000_003:x}z" for n in range(ROWS)]
    assert encode_array(mostly_null(values, every)).encoding is not Encoding.DICTIONARY
    assert lengths
    assert max(lengths) < ROWS // 10
