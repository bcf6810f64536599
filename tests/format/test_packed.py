"""Nested values as strings of bytes: what comes back from them, and which are equal."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_fragment import native
from lsm_fragment.arrays.nested_bytes import packed, unpacked
from lsm_fragment.arrays.storage import plain
from lsm_fragment.gather.columns import gather
from lsm_fragment.gather.nested import positions_by_source
from lsm_fragment.gather.origins import Origins
from lsm_fragment.gather.pieces import GatherArray, Pieces, pieces_of
from tests.support.wording import refuses

NAN = float("nan")
VALUES: list[tuple[pa.DataType, list[object]]] = [
    (pa.list_(pa.string()), [["a", "bb", None], [], ["", ""], ["abb"], ["a", "bb"], ["ж"] * 3]),
    (pa.list_(pa.int32()), [[1, 2, None], [], [5], [0], [None]]),
    (pa.list_(pa.float64()), [[0.0], [-0.0], [NAN], [None], []]),
    (pa.large_list(pa.bool_()), [[True, None], [False] * 9, []]),
    (
        pa.map_(pa.string(), pa.list_(pa.int8())),
        [[("a", [1]), ("b", None)], [], [("c", [])], [("c", None)]],
    ),
    (
        pa.list_(
            pa.struct(
                [
                    ("x", pa.int8()),
                    ("y", pa.list_(pa.null())),
                    ("z", pa.decimal128(20, 2)),
                    ("s", pa.large_string()),
                ]
            )
        ),
        [
            [{"x": 1, "y": [None, None], "z": None, "s": "s"}, None],
            [],
            [{"x": None, "y": None, "z": Decimal("1.25"), "s": None}],
        ],
    ),
    (pa.list_(pa.list_(pa.int16(), 2)), [[[1, 2], None, [3, None]], [], [[1, 2]]]),
    (pa.list_(pa.list_(pa.int16(), 0)), [[[], None, []], [], [None]]),
    (pa.list_(pa.list_(pa.list_(pa.binary(2)))), [[[[b"ab"], []], []], [[], [[]]], []]),
    (pa.list_(pa.struct([])), [[{}, {}], [], [{}]]),
    (pa.list_(pa.null()), [[None] * 3, []]),
    (pa.list_(pa.large_binary()), [[b"x", b""], [None], []]),
]
CASES = pytest.mark.parametrize(("dtype", "values"), VALUES, ids=[str(t) for t, _ in VALUES])


@CASES
@pytest.mark.parametrize("start", [0, 1, 2, 5])
def test_nested_values_come_back_from_their_bytes(
    dtype: pa.DataType, values: list[object], start: int
) -> None:
    for rows in (0, 1, 4):
        array = pa.array(values * 3, dtype).slice(start, rows)
        strings = packed(array)
        assert strings is not None
        back = unpacked(strings, dtype)
        back.validate(full=True)
        assert repr(back.to_pylist()) == repr(array.to_pylist())


@CASES
def test_only_equal_values_have_the_same_bytes(dtype: pa.DataType, values: list[object]) -> None:
    shifted = packed(pa.array([values[-1], *values], dtype).slice(1))
    strings = packed(pa.array(values * 2, dtype))
    assert strings is not None
    assert strings.to_pylist()[len(values) :] == strings.to_pylist()[: len(values)]
    assert shifted is not None
    assert shifted.to_pylist() == strings.to_pylist()[: len(values)]
    assert len(set(strings.to_pylist())) == len(values)


def _hidden(items: pa.Array, seen: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Returns lists of two whose second element is null: over elements that have something there, and over
    those that say nothing else."""
    validity = pa.array([True, False] * (len(items) // 2)).buffers()[1]
    buffers = [validity, *items.buffers()[1 : items.type.num_buffers]]
    children = []
    if pa.types.is_struct(items.type):
        children = [items.field(0)]
    elif pa.types.is_nested(items.type):
        children = [items.values]
    covered = pa.Array.from_buffers(items.type, len(items), buffers, -1, children=children)
    offsets = pa.array(range(0, len(items) + 1, 2), pa.int32())
    return pa.ListArray.from_arrays(offsets, covered), pa.ListArray.from_arrays(offsets, seen)


@pytest.mark.parametrize(
    ("dtype", "values", "seen"),
    [
        (pa.int32(), [1, 2, 1, 3], [1, None, 1, None]),
        (pa.bool_(), [True, True, True, False], [True, None, True, None]),
        (pa.string(), ["a", "b", "a", "cc"], ["a", None, "a", None]),
        (pa.list_(pa.int8()), [[1], [2, 3], [1], []], [[1], None, [1], None]),
        (pa.list_(pa.int8(), 1), [[1], [2], [1], [3]], [[1], None, [1], None]),
        (
            pa.struct([("x", pa.int8())]),
            [{"x": 1}, {"x": 2}, {"x": 1}, {"x": 3}],
            [{"x": 1}, None, {"x": 1}, None],
        ),
    ],
)
def test_what_hides_under_nulls_makes_no_difference(
    dtype: pa.DataType, values: list[object], seen: list[object]
) -> None:
    hidden, shown = _hidden(pa.array(values, dtype), pa.array(seen, dtype))
    assert hidden.to_pylist() == shown.to_pylist()
    strings = packed(hidden)
    assert strings is not None
    assert strings == packed(shown)
    assert strings[0] == strings[1]


def test_memory_is_asked_for_before_it_is_taken() -> None:
    asked: list[int] = []

    def refuse(size: int) -> bool:
        asked.append(size)
        return False

    array = pa.array([["a", "bb"], []])
    assert packed(array, refuse) is None
    strings = packed(array, lambda size: size == asked[0])
    assert strings is not None
    assert strings.get_total_buffer_size() == asked[0]


def test_elements_that_32_bit_offsets_do_not_reach_are_refused() -> None:
    lengths = np.full(3, 2**30, dtype=np.int32).view(np.uint8)
    strings = pa.array([lengths[place : place + 4].tobytes() for place in (0, 4, 8)])
    with pytest.raises(pa.ArrowInvalid, match="32-bit"):
        unpacked(strings.cast(pa.large_binary()), pa.list_(pa.null()))


@pytest.mark.parametrize(
    ("starts", "sizes", "places"),
    [([0], [5], [0]), ([-1], [1], [0]), ([0], [1], [4]), ([0], [1], [-1]), ([0], [-1], [0]),
     ([2**62], [2], [0]), ([0], [2], [2**62]), ([0], [2**62], [0])],
)  # fmt: skip
def test_runs_that_are_not_within_their_bytes_are_refused(
    starts: list[int], sizes: list[int], places: list[int]
) -> None:
    data, out = np.zeros(4, dtype=np.uint8), np.zeros(4, dtype=np.uint8)
    runs = (np.array(some, dtype=np.int64) for some in (starts, sizes, places))
    with refuses(ValueError, "not within"):
        first, second, third = runs
        native.arrays.strings.copy_runs(data, first, second, out, third)


def _coded(values: list[object], dtype: pa.DataType) -> pa.Array:
    """Dictionary-codes values over a dictionary in any order, with some that no row uses."""
    distinct = sorted({repr(value): value for value in values if value is not None}.items())
    codes = {text: place for place, (text, _) in enumerate(distinct)}
    indices = [None if value is None else codes[repr(value)] for value in values]
    dictionary = pa.array([value for _, value in distinct] + [[]], dtype)
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), dictionary)


def _packed_pieces(sources: list[pa.Array], dtype: pa.DataType) -> Pieces:
    pieces = pieces_of([[array] for array in sources], dtype)
    for number, array in enumerate(sources):
        if pa.types.is_dictionary(array.type) and array.null_count < len(array):
            coded = GatherArray(array, dtype, packed=packed(array.dictionary))
            rows = pieces.fields[number, 1]
            pieces.arrays[number] = coded  # type: ignore[index]
            pieces.fields[number] = coded.fields
            pieces.fields[number, 1] = rows
    return pieces


@given(
    st.sampled_from([case for case in VALUES if case[0] != pa.list_(pa.float64())]),
    st.lists(st.sampled_from(["coded", "plain", "nulls"]), min_size=2, max_size=5),
    st.data(),
)
def test_packed_dictionaries_are_gathered_as_arrow_would(
    case: tuple[pa.DataType, list[object]], kinds: list[str], data: st.DataObject
) -> None:
    dtype, values = case
    sources, order = [], []
    for number, kind in enumerate(kinds):
        some = data.draw(st.lists(st.none() | st.sampled_from(values), min_size=1, max_size=12))
        array = pa.array(some, dtype) if kind == "plain" else _coded(some, dtype)
        sources.append(pa.nulls(len(some)) if kind == "nulls" else array)
        order += [number] * len(some)
    origins = np.array(data.draw(st.permutations(order)), dtype=np.uint16)
    pieces = _packed_pieces(sources, dtype)
    pieces.mark_nulls()
    expected = pa.concat_arrays(
        [pa.nulls(len(a), dtype) if pa.types.is_null(a.type) else plain(a) for a in sources]
    ).take(pa.array(positions_by_source(origins)))
    held, most = pieces.weigh()
    found = gather(pieces, Origins.of(origins, len(sources)))
    assert plain(found).to_pylist() == expected.to_pylist()
    assert held + most > 0
    if pieces.has_codes:
        used = [value for value in expected.to_pylist() if value is not None]
        assert found.dictionary.to_pylist() == list({repr(value): value for value in used}.values())
