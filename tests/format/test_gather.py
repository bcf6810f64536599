"""Rows gathered from several sources: the same as Arrow's take of all pieces end to end."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_fragment.arrays.buffers import binary_parts
from lsm_fragment.arrays.sizes import heaviest_value_bytes
from lsm_fragment.arrays.storage import plain
from lsm_fragment.gather.columns import gather, gather_arrays
from lsm_fragment.gather.nested import positions_by_source
from lsm_fragment.gather.origins import Origins
from lsm_fragment.gather.pieces import (
    FIELDS,
    HEAVIEST_BYTES,
    ROWS,
    START,
    GatherArray,
    NumberedStrings,
    Pieces,
    pieces_of,
)
from lsm_fragment.native import as_bytes
from lsm_fragment.native.gather import rows as native
from lsm_fragment.native.gather.ids import StringTable
from tests.support.wording import refuses

TYPES = [
    pa.bool_(), pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.float64(), pa.decimal128(20, 2),
    pa.binary(3), pa.binary(0), pa.string(), pa.large_string(), pa.binary(), pa.list_(pa.int32()),
    pa.struct([("a", pa.int8()), ("b", pa.string())]), pa.null(),
]  # fmt: skip


def values(dtype: pa.DataType) -> st.SearchStrategy[object]:
    if pa.types.is_boolean(dtype):
        return st.booleans()
    if pa.types.is_null(dtype):
        return st.none()
    if pa.types.is_list(dtype):
        return st.lists(st.integers(0, 3), max_size=2)
    if pa.types.is_struct(dtype):
        return st.fixed_dictionaries({"a": st.integers(0, 3), "b": st.sampled_from(["", "x"])})
    if pa.types.is_fixed_size_binary(dtype) and not pa.types.is_decimal(dtype):
        return st.binary(min_size=dtype.byte_width, max_size=dtype.byte_width)
    if pa.types.is_binary(dtype):
        return st.sampled_from([b"", b"a", b"a" * 9])
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return st.sampled_from(["", "a", "b", "c" * 8, "c" * 9, "é" * 40])
    if pa.types.is_decimal(dtype):
        return st.decimals(-99, 99, places=2)
    return st.integers(0, 100)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[list[pa.Array]], np.ndarray, pa.DataType]:
    """Pieces by source, sliced out of larger arrays, plain, dictionary-coded or nothing but nulls."""
    dtype = draw(st.sampled_from(TYPES))
    is_coded = draw(st.booleans()) and (pa.types.is_string(dtype) or pa.types.is_binary(dtype))
    sources, order = [], []
    for number in range(draw(st.integers(1, 5))):
        pieces = []
        for _ in range(draw(st.integers(0, 3))):
            known = draw(st.lists(st.none() | values(dtype), max_size=20))
            array = pa.array(known, dtype)
            if is_coded or (draw(st.booleans()) and pa.types.is_string(dtype)):
                array = array.dictionary_encode()
            start = draw(st.integers(0, len(array)))
            array = array.slice(start, draw(st.integers(0, len(array))))
            pieces.append(pa.nulls(len(array)) if draw(st.integers(0, 9)) == 0 else array)
            order += [number] * len(array)
        sources.append(pieces)
    if draw(st.booleans()):
        order = draw(st.permutations(order))
    return sources, np.array(order, dtype=np.uint16), dtype


def prepared(sources: list[list[pa.Array]], dtype: pa.DataType) -> Pieces:
    """Pieces that are rows in the middle of larger arrays."""
    pieces = pieces_of([[middle(array) for array in source] for source in sources], dtype)
    sizes = [len(array) for source in sources for array in source if len(array)]
    pieces.fields[:, START] = pieces.fields[:, ROWS] > sizes
    pieces.fields[:, ROWS] = sizes
    return pieces


def middle(array: pa.Array) -> pa.Array:
    around = array.slice(0, 1)
    if pa.types.is_dictionary(array.type) or pa.types.is_nested(array.type):
        return array
    return pa.concat_arrays([around, array, around])


@given(cases(), st.sampled_from([0, 1, 1 << 30]))
def test_rows_come_in_the_order_of_their_sources(case, max_plain_bytes: int) -> None:
    sources, origins, dtype = case
    pieces = prepared(sources, dtype)
    rows = Origins.of(origins, len(sources))
    got = gather(pieces, rows, max_plain_bytes)
    got.validate(full=True)
    parts = [plain(p) if len(p) and p.null_count < len(p) else pa.nulls(len(p), dtype)
              for source in sources for p in source]  # fmt: skip
    together = pa.concat_arrays(parts) if parts else pa.nulls(0, dtype)
    assert plain(got).equals(together.take(pa.array(positions_by_source(origins))))
    assert plain(got).type == dtype
    each = gather(prepared(sources, dtype), rows, max_plain_bytes, may_code_each=True)
    each.validate(full=True)
    assert plain(each).equals(plain(got))
    assert plain(each).type == dtype


@pytest.mark.parametrize("pieces", ["whole", "halves", "nulls"])
@pytest.mark.parametrize("shape", ["runs", "rows"])
@pytest.mark.parametrize("number", [8, 300])
def test_rows_of_few_and_of_many_sources_in_runs_and_one_by_one(
    number: int, shape: str, pieces: str
) -> None:
    rng = np.random.default_rng(7)
    ordered = rng.integers(0, number, 20_000)
    ordered = np.sort(ordered) if shape == "runs" else ordered
    origins = ordered.astype(np.uint16)
    counts = np.bincount(origins, minlength=number)
    decimal = pa.decimal128(22, 2)
    for dtype in (pa.bool_(), pa.int8(), pa.uint16(), pa.int32(), pa.int64(), decimal, pa.string()):
        is_null = rng.random(number) < 0.3
        sources = [
            _in_pieces(_random(rng, n, dtype, has_nulls=pieces == "nulls"), pieces, is_null[source])
            for source, n in enumerate(counts)
        ]
        together = pa.concat_arrays([
            piece if piece.type == dtype else piece.cast(dtype)
            for source in sources for piece in source])  # fmt: skip
        expected = together.take(pa.array(positions_by_source(origins)))
        assert gather_arrays(sources, Origins.of(origins, len(sources))).equals(expected)


def _random(
    rng: np.random.Generator, rows: int, dtype: pa.DataType, *, has_nulls: bool
) -> pa.Array:
    """Random values, as a slice of a larger array."""
    numbers = rng.integers(0, 99, rows + 1)
    mask = rng.random(rows + 1) < 0.4 if has_nulls else None
    if pa.types.is_boolean(dtype):
        return pa.array(numbers < 40, mask=mask).slice(1)
    return pa.array(numbers, mask=mask).cast(dtype, safe=False).slice(1)


def _in_pieces(array: pa.Array, pieces: str, is_null: bool) -> list[pa.Array]:
    if pieces == "whole":
        return [array]
    half = len(array) // 2
    rest = array.slice(half)
    return [array.slice(0, half), pa.nulls(len(rest)) if is_null and pieces == "nulls" else rest]


@pytest.mark.parametrize("dtype", [pa.string(), pa.large_binary()])
def test_strings_of_many_sources_in_many_pieces_come_one_by_one(dtype: pa.DataType) -> None:
    rng = np.random.default_rng(3)
    origins = rng.integers(0, 200, 10_000).astype(np.uint16)
    sources = []
    for rows in np.bincount(origins, minlength=201).tolist():  # the last source has no rows
        texts = ["x" * int(size) + str(size) for size in rng.integers(0, 40, rows + 2)]
        values = pa.array(texts).cast(dtype)
        hidden = pa.array(rng.integers(0, 9, rows + 2) > 0)
        validity = hidden.buffers()[1]
        array = pa.Array.from_buffers(dtype, rows + 2, [validity, *values.buffers()[1:]])
        cuts = np.sort(rng.integers(1, rows + 2, 3)).tolist()
        ends = zip([1, *cuts], [*cuts, rows + 1], strict=True)
        pieces = [array.slice(start, stop - start) for start, stop in ends]
        sources.append([pa.nulls(len(p)) if p.null_count == len(p) else p for p in pieces])
    together = pa.concat_arrays([p.cast(dtype) for source in sources for p in source])
    expected = together.take(pa.array(positions_by_source(origins)))
    got = gather_arrays(sources, Origins.of(origins, len(sources)))
    got.validate(full=True)
    assert got.equals(expected)


def test_a_dictionary_has_the_values_in_use_by_first_use() -> None:
    first = pa.array(["unused", "b", "a", "b"]).dictionary_encode().slice(1)
    second = pa.array(["a", None, "c"]).dictionary_encode()
    origins = Origins.of(np.array([1, 0, 0, 1, 0, 1], dtype=np.uint16), 2)
    got = gather_arrays([[first], [second]], origins)
    assert got.dictionary.to_pylist() == ["a", "b", "c"]
    assert got.to_pylist() == ["a", "b", "a", None, "b", "c"]


def numbered(array: pa.Array, tables: list[StringTable], series: int) -> GatherArray:
    """An array whose strings are numbered; without numbers if the series is 0."""
    if not series or not pa.types.is_dictionary(array.type):
        return GatherArray(array)
    numbers = np.empty(len(array.dictionary), np.int32)
    offsets, data = binary_parts(array.dictionary)
    assert tables[series].number(offsets, as_bytes(data), numbers)
    return GatherArray(array, numbered=NumberedStrings(numbers, series, tables[series].count))


@given(st.data(), st.sampled_from([pa.string(), pa.large_binary()]), st.sampled_from([0, 1 << 30]))
def test_numbered_strings_are_gathered_as_others_are(
    data: st.DataObject, dtype: pa.DataType, max_plain_bytes: int
) -> None:
    tables = [StringTable(100, 1000) for _ in range(3)]
    value = st.none() | st.sampled_from(["", "a", "b", "c" * 8, "c" * 9, "d" * 40])
    arrays: list[pa.Array] = []
    firsts, order = [], []
    for source in range(data.draw(st.integers(1, 4))):
        firsts.append(len(arrays))
        for _ in range(data.draw(st.integers(1, 3))):
            texts = data.draw(st.lists(value, min_size=1, max_size=30))
            array = pa.array(texts).cast(dtype).dictionary_encode()
            array = array.slice(data.draw(st.integers(0, len(array) - 1)))
            arrays.append(pa.nulls(len(array)) if array.null_count == len(array) else array)
            order += [source] * len(array)
    origins = Origins.of(np.array(data.draw(st.permutations(order)), np.uint16), len(firsts))
    series = [data.draw(st.integers(0, 2)) for _ in arrays]
    got = []
    for choice in ([0] * len(arrays), series):
        gathered = [
            numbered(array, tables, number) for array, number in zip(arrays, choice, strict=True)
        ]
        fields = np.array([array.fields for array in gathered])
        fields[:, ROWS] = [len(array) for array in arrays]
        got.append(
            gather(Pieces(gathered, fields, np.array(firsts), dtype), origins, max_plain_bytes)
        )
    assert got[0].type == got[1].type
    assert got[0].equals(got[1])
    if pa.types.is_dictionary(got[0].type):
        assert got[0].dictionary.equals(got[1].dictionary)


def test_few_rows_of_many_numbered_strings_take_no_place_for_all_of_them() -> None:
    tables = [StringTable(1, 1), StringTable(1000, 10_000)]
    many = numbered(pa.array([str(n) for n in range(1000)]).dictionary_encode(), tables, 1)
    fields = np.array([many.fields])
    fields[:, ROWS] = 5
    size, distinct, are_sure = native.assign_memos(fields, 4, 5)
    assert (size, distinct, are_sure) == (0, 1000, False)
    size, distinct, are_sure = native.assign_memos(np.array([many.fields]), 4, 250)
    assert (size, distinct, are_sure) == (1000, 1000, True)


def test_strings_have_one_number_whichever_dictionary_they_are_of() -> None:
    table = StringTable(3, 5)
    assert numbers_of(table, ["b", "", "aaa"]) == [0, 1, 2]
    assert numbers_of(table, ["aaa", "b", "aaa"]) == [2, 0, 2]
    assert numbers_of(table, ["b", "new"]) is None  # no place for a fourth
    assert table.count == 3
    assert numbers_of(StringTable(9, 5), ["123", "456"]) is None  # no room for its bytes
    sliced = pa.array(["x", "aaa", "b"]).slice(1)
    assert numbers_of(table, sliced) == [2, 0]
    assert numbers_of(table, []) == []
    with refuses(ValueError):
        StringTable(0, 5)
    with refuses(ValueError):
        table.number(np.zeros(3, np.int32), np.zeros(1, np.uint8), np.zeros(3, np.int32))


def numbers_of(table: StringTable, texts: list[str] | pa.Array) -> list[int] | None:
    array = pa.array(texts, pa.string()) if isinstance(texts, list) else texts
    numbers = np.empty(len(array), np.int32)
    offsets, data = binary_parts(array)
    return numbers.tolist() if table.number(offsets, as_bytes(data), numbers) else None


def test_strings_that_hardly_repeat_are_values_only_if_these_are_small() -> None:
    long = "x" * 10_000
    few = pa.array([long] * 50 + [str(n) for n in range(50)]).dictionary_encode()
    origins = Origins.of(np.zeros(100, dtype=np.uint16), 1)
    halves = prepared([[few.slice(0, 50), few.slice(50)]], pa.string())
    assert pa.types.is_string(gather(halves, origins, 1 << 20).type)
    assert pa.types.is_dictionary(gather(halves, origins, 1 << 16).type)
    assert pa.types.is_dictionary(gather(halves, origins).type)


@pytest.mark.parametrize("order", [[0, 1, 1], [0, 0, 1, 1], [0, 0], [0, 0, 1, 2]])
def test_sources_and_order_must_agree(order: list[int]) -> None:
    origins = Origins.of(np.array(order, dtype=np.uint16), max(order) + 1)
    with pytest.raises(ValueError, match="rows that the order names"):
        gather_arrays([[pa.array([1, 2])], [pa.array([3])]], origins)


def test_rows_are_taken_of_every_source_as_far_as_it_has_some() -> None:
    cursors = np.array([piece_at(start) for start in (5, 0, 7)])
    left, sources = np.array([2, 9, 0]), np.array([0, 1, 2], np.uint16)
    missing, places = np.empty(3, np.int64), np.empty(3, np.int64)
    pieces = np.empty((3, FIELDS), np.int64)
    assert native.lacking(left, sources, np.array([4, 3, 0], np.uint32), missing) == [0]
    assert native.take_rows(cursors, left, sources, missing, places, pieces) == [0, 1]
    assert (places[:2].tolist(), pieces[:2].tolist()) == ([0, 1], [piece_at(5, 2), piece_at(0, 3)])
    assert cursors[:, START].tolist() == [7, 3, 7]
    assert (left.tolist(), missing.tolist()) == ([0, 6, 0], [2, 0, 0])


def piece_at(start: int, rows: int = 0) -> list[int]:
    fields = [0] * FIELDS
    fields[ROWS], fields[START] = rows, start
    return fields


def test_sources_that_there_are_not_are_refused() -> None:
    cursors, left = np.zeros((2, FIELDS), np.int64), np.array([3, 3])
    one, many, counts = np.array([2], np.uint16), np.zeros(3, np.uint16), np.ones(1, np.uint32)
    room, pieces = np.ones(1, np.int64), np.zeros((1, FIELDS), np.int64)
    with refuses(ValueError):
        native.lacking(left, one, counts, room)
    with refuses(ValueError):
        native.lacking(left, many, counts, room)
    with refuses(ValueError):
        native.take_rows(cursors, left, one, room, room, pieces)
    with refuses(ValueError):
        native.take_rows(cursors, left, many, room, room, pieces)
    with refuses(ValueError):
        native.take_rows(cursors[:, :5].copy(), left, one, room, room, pieces)


@pytest.mark.parametrize("dtype", [pa.string(), pa.large_binary()])
@pytest.mark.parametrize("values", [["", "ab", "c"], ["é", None, "ab"], []])
def test_a_dictionary_weighs_what_arrow_says(dtype: pa.DataType, values: list[str | None]) -> None:
    dictionary = pa.array(["before", *values, "behind"]).cast(dtype)[1 : len(values) + 1]
    codes = pa.array([0] * bool(values) + [None], pa.int32())
    coded = GatherArray(pa.DictionaryArray.from_arrays(codes, dictionary))
    if values:
        heaviest, held = coded.fields[HEAVIEST_BYTES : HEAVIEST_BYTES + 2].tolist()
        assert (heaviest, held) == (heaviest_value_bytes(dictionary), dictionary.nbytes)
