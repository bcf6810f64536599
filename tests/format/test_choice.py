"""Which encoding a chunk gets, where a sample decides."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from lsm_fragment.arrays.buffers import pack_bits
from lsm_fragment.blocks.compression import Part
from lsm_fragment.encodings import dictionary, samples
from lsm_fragment.encodings.coding import encode_array
from lsm_fragment.encodings.node import Encoding

ROWS = 100_000


def mostly_null(values: Sequence[str], every: int) -> pa.Array:
    """One of `every` rows has a value, the other ones are null."""
    return pa.array([None if row % every else values[row // every] for row in range(ROWS)])


def lengths_looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list that gets the rows of every array whose values are looked at."""
    codes, lengths = samples.number_values, list[int]()

    def noted(array: pa.Array, most: int) -> object:
        lengths.append(len(array))
        return codes(array, most)

    monkeypatch.setattr(samples, "number_values", noted)
    monkeypatch.setattr(dictionary, "number_values", noted)
    return lengths


@pytest.mark.parametrize("every", [1, 3, 100])
def test_values_that_recur_get_a_dictionary_however_many_nulls_are_among_them(every: int) -> None:
    values = [f"value {n * n % 101}" for n in range(ROWS)]
    assert encode_array(mostly_null(values, every)).encoding is Encoding.DICTIONARY


@pytest.mark.parametrize("every", [1, 3, 100])
def test_values_that_differ_are_found_out_by_a_sample_however_many_nulls_are_among_them(
    every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = lengths_looked_at(monkeypatch)
    values = [f"{n * n % 1_000_003:x}z" for n in range(ROWS)]
    assert encode_array(mostly_null(values, every)).encoding is not Encoding.DICTIONARY
    assert lengths
    assert max(lengths) < ROWS // 10


def test_binaries_that_a_codec_does_not_shrink_are_passed_by() -> None:
    noise = random.Random(5).randbytes(16 * ROWS)
    ids = [noise[16 * n : 16 * n + 16] for n in range(ROWS)]
    assert [part.is_dense for part in _wide(ids)] == [True]
    assert [part.is_dense for part in _wide([one[:2] + bytes(14) for one in ids])] == [False]


def _wide(values: list[bytes]) -> tuple[Part, ...]:
    encoded = encode_array(pa.array(values, pa.binary(16)))
    assert encoded.encoding is Encoding.PLAIN
    return encoded.parts


def test_decimals_that_fit_64_bits_are_packed_whatever_nulls_hide() -> None:
    halves = np.array([[n, 0] for n in range(ROWS)], dtype=np.int64)
    halves[::3, 1] = 1 << 40
    valid = np.arange(ROWS) % 3 != 0
    buffers = [pa.py_buffer(pack_bits(valid)), pa.py_buffer(halves)]
    array = pa.Array.from_buffers(pa.decimal128(38, 2), ROWS, buffers)
    assert encode_array(array).encoding is Encoding.PACKED


@pytest.mark.parametrize("distinct", [500, 3_000, ROWS // 10])
def test_values_that_recur_far_apart_get_a_dictionary(distinct: int) -> None:
    rng = np.random.default_rng(5)
    names = [f"name {n * 7919 % 1_000_003:x}" for n in range(distinct)]
    drawn = pa.array([names[place] for place in rng.integers(0, distinct, ROWS)])
    assert encode_array(drawn).encoding is Encoding.DICTIONARY
    coded = dictionary.by_dictionary(drawn)
    assert pa.types.is_dictionary(coded.type)
    assert pa.types.is_dictionary(dictionary.recoded(coded).type)


@pytest.mark.parametrize("distinct", [1_900, 3_000])
def test_few_values_are_numbered_at_once_without_a_sample(
    distinct: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a dictionary is found that a sample of them would not show."""
    lengths = lengths_looked_at(monkeypatch)
    names = [f"name {n * 7919 % distinct}" for n in range(3 * 1_900)]
    coded = dictionary.by_dictionary(pa.array(names))
    assert pa.types.is_dictionary(coded.type) == (distinct == 1_900)
    assert lengths == [len(names)]


@pytest.mark.parametrize("distinct", [1, 40, ROWS // 4, ROWS // 2, ROWS])
def test_rows_that_are_coded_each_by_itself_are_stored_as_if_they_were_not(distinct: int) -> None:
    places = np.random.default_rng(5).integers(0, distinct, ROWS)
    lists = pa.array([None if place % 7 == 3 else [str(place)] for place in places.tolist()])
    for values in (lists, lists.slice(0, 100), pa.nulls(ROWS, lists.type)):
        order = np.random.default_rng(6).permutation(len(values))
        indices = pa.array(order, pa.int32()).filter(values.take(order).is_valid())
        codes = pa.array([None] * values.null_count, pa.int32())
        each = pa.DictionaryArray.from_arrays(pa.concat_arrays([codes, indices]), values)
        plain = values.take(each.indices)
        assert dictionary.recoded(each).equals(dictionary.by_dictionary(plain))


def test_coded_lists_may_all_be_null_in_the_middle() -> None:
    codes = [*[0, 1] * 3_000, *[None] * ROWS, *[1, 0] * 3_000]
    coded = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array([["a"], ["b"]]))
    assert dictionary.recoded(coded).equals(coded)


@pytest.mark.parametrize("often", [0, 10_000])
def test_values_that_differ_are_not_all_looked_at_because_one_of_them_is_frequent(
    often: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = lengths_looked_at(monkeypatch)
    rng = np.random.default_rng(5)
    values = [f"{n:x}z" for n in rng.permutation(ROWS)]
    for place in rng.integers(0, ROWS, often):
        values[place] = "-"
    assert encode_array(pa.array(values)).encoding is not Encoding.DICTIONARY
    assert max(lengths) < ROWS // 10


@pytest.mark.parametrize("are_strings", [False, True])
def test_values_that_are_equal_only_to_their_neighbours_are_not_all_looked_at(
    are_strings: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = lengths_looked_at(monkeypatch)
    rng = np.random.default_rng(5)
    times = pa.array(np.cumsum(rng.integers(0, 6, ROWS) * 1_000_003))
    array = times.cast(pa.string()) if are_strings else times
    assert encode_array(array).encoding is not Encoding.DICTIONARY
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
    coded = dictionary.by_dictionary(lists)
    assert coded.indices.null_count == lists.null_count
    assert len(coded.dictionary) == len(
        {str(value) for value in lists.to_pylist() if value is not None}
    )
    assert str(coded.dictionary.take(coded.indices).to_pylist()) == str(lists.to_pylist())
