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
    coded, lengths = encode._coded_values, list[int]()

    def noted(array: pa.Array, most: int) -> pa.Array | None:
        lengths.append(len(array))
        return coded(array, most)

    monkeypatch.setattr(encode, "_coded_values", noted)
    values = [f"{n * n % 1_000_003:x}z" for n in range(ROWS)]
    assert encode_array(mostly_null(values, every)).encoding is not Encoding.DICTIONARY
    assert lengths
    assert max(lengths) < ROWS // 10


@pytest.mark.parametrize(
    "values",
    [
        [[], [None], [""], ["", None], None],
        [[float("nan")], [0.0], [-0.0], [0.0, -0.0]],
        [[{"a": 1, "b": None}], [{"a": None, "b": 1}], [None], []],
    ],
)
def test_lists_that_recur_get_a_dictionary_of_lists_that_differ(values: list[object]) -> None:
    lists = pa.array(values).take(pa.array([n * n % len(values) for n in range(5000)]))
    coded = encode.by_dictionary(lists)
    assert coded.indices.null_count == lists.null_count
    assert len(coded.dictionary) == len(
        {str(value) for value in lists.to_pylist() if value is not None}
    )
    assert str(coded.dictionary.take(coded.indices).to_pylist()) == str(lists.to_pylist())
