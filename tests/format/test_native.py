"""The loops of format/lsm_fragment/native give what plain Python gives."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

import lsm_fragment
from lsm_fragment.arrays.hashing import (
    add_column,
    column_contributions,
    distinct_numbers,
    value_hashes,
)
from lsm_fragment.arrays.joining import in_order_of_use
from lsm_fragment.arrays.storage import decoded, plain, to_storage
from lsm_fragment.encodings.dictionary import by_dictionary
from lsm_fragment.native.arrays import components, hashing, integers
from lsm_fragment.native.encodings import bits
from lsm_fragment.native.keys import extremes
from tests.support.loops import loops
from tests.support.samples import SAMPLES, sample_array
from tests.support.wording import refuses

STRING_TYPES = [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()]


@st.composite
def strings(draw: st.DrawFn, dtype: pa.DataType) -> pa.Array:
    pool = draw(
        st.lists(st.text(max_size=30) | st.text("ab\0", min_size=8, max_size=60), min_size=1)
    )
    picks = draw(st.lists(st.none() | st.sampled_from(pool), max_size=200))
    values = [v if v is None or "string" in str(dtype) else v.encode() for v in picks]
    array = pa.array(values, dtype)
    return array.slice(draw(st.integers(0, max(0, len(array) - 1))))


@given(st.lists(st.sampled_from([0, 1, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1)))
def test_distinct_numbers_come_once_and_in_order(hashes: list[int]) -> None:
    found = distinct_numbers(np.array(hashes, dtype=np.uint64))
    assert found.tolist() == sorted(set(hashes))


@given(st.data(), st.sampled_from(STRING_TYPES))
def test_distinct_strings_come_in_the_order_of_their_first_use(
    data: st.DataObject, dtype: pa.DataType
) -> None:
    array = data.draw(strings(dtype))
    coded = by_dictionary(array)
    if pa.types.is_dictionary(coded.type):
        used = dict.fromkeys(value for value in array.to_pylist() if value is not None)
        assert coded.dictionary.to_pylist() == list(used)
        coded = coded.cast(dtype)
    assert coded.equals(array)


@given(st.lists(st.none() | st.integers(0, 9), max_size=100), st.integers(0, 20))
def test_codes_come_in_the_order_of_their_first_use(codes: list[int | None], start: int) -> None:
    indices = pa.array(codes, pa.int32()).slice(start)
    values = pa.array([f"value {n}" for n in range(10)])
    array = pa.DictionaryArray.from_arrays(indices, values)
    found = in_order_of_use(array)
    assert found.cast(pa.string()).equals(array.cast(pa.string()))
    used = list(dict.fromkeys(code for code in indices.to_pylist() if code is not None))
    assert found.dictionary.to_pylist() == [f"value {n}" for n in used]


@given(
    st.data(), st.sampled_from(STRING_TYPES), st.sampled_from(["int8", "uint16", "int32", "int64"])
)
def test_codes_become_the_strings_that_they_stand_for(
    data: st.DataObject, dtype: pa.DataType, index: str
) -> None:
    pool = st.none() | st.text(max_size=12) | st.text("ab", min_size=15, max_size=40)
    texts = data.draw(st.lists(pool, min_size=1, max_size=20))
    values = pa.array(texts, pa.string()).cast(dtype)
    values = values.slice(data.draw(st.integers(0, len(values) - 1)))
    picks = st.tuples(st.integers(0, len(values) - 1), st.booleans())
    rows = data.draw(st.lists(picks, max_size=60))
    codes = np.array([code if ok else 99 for code, ok in rows], dtype=index)  # nulls have any code
    indices = pa.array(codes, mask=np.array([not ok for _, ok in rows], dtype=bool))
    start = data.draw(st.integers(0, len(rows)))
    array = pa.DictionaryArray.from_arrays(indices, values, safe=False).slice(start)
    found = decoded(array)
    found.validate(full=True)
    listed = values.to_pylist()
    assert found.type == dtype
    assert found.to_pylist() == [listed[code] if ok else None for code, ok in rows][start:]


@pytest.mark.parametrize("code", [-1, 2])
def test_a_code_without_a_string_is_refused(code: int) -> None:
    indices = pa.array([0, code], pa.int32())
    array = pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]), safe=False)
    with refuses(pa.ArrowInvalid):
        decoded(array)


def test_null_is_not_zero_in_a_list_and_adds_nothing_to_a_row() -> None:
    rows = [[None], [0], [], [None, None], [0, None], [None, 0]]
    for dtype in (pa.int64(), pa.bool_(), pa.float32(), pa.decimal128(30, 2)):
        hashes = value_hashes(pa.array(rows, pa.list_(pa.int64())).cast(pa.list_(dtype)))
        assert len(set(hashes.tolist())) == len(rows), dtype
    untyped = value_hashes(pa.array([[None], [], [None, None]], pa.list_(pa.null())))
    assert untyped.tolist() == value_hashes(pa.array(rows, pa.list_(pa.int8())))[[0, 2, 3]].tolist()
    numbers = np.arange(3, dtype=np.uint64)
    for nothing in (pa.nulls(3, pa.string()), pa.nulls(3), pa.nulls(3, pa.list_(pa.int8()))):
        add_column("c", nothing, numbers)
    assert numbers.tolist() == [0, 1, 2]


def test_every_byte_of_a_long_value_counts() -> None:
    value = bytearray(200)
    changed = [bytes(value[:at] + b"\1" + value[at + 1 :]) for at in range(200)]
    for dtype in (pa.binary(), pa.large_binary(), pa.binary(200)):
        hashes = value_hashes(pa.array([bytes(value), *changed], dtype))
        assert hashes[0] == xxhash.xxh3_64_intdigest(bytes(value))
        assert len(set(hashes.tolist())) == 201


@loops("name", SAMPLES)
def test_slices_hash_as_their_rows_do(name: str) -> None:
    array = to_storage(sample_array(name, 3))
    whole = value_hashes(plain(array))
    for start, rows in ((0, 0), (1, 5), (3, 9), (len(array), 0)):
        part = array.slice(start, rows)
        assert value_hashes(plain(part)).tolist() == whole[start : start + rows].tolist()
        one = column_contributions("c", part)
        assert one.tolist() == column_contributions("c", array)[start : start + rows].tolist()


@loops("dtype", [pa.uint8(), pa.int32(), pa.int64(), pa.float16(), pa.float32(), pa.float64()])
@pytest.mark.parametrize("null_share", [0, 0.1])
def test_rows_of_several_blocks_hash_as_those_of_few_do(
    dtype: pa.DataType, null_share: float
) -> None:
    rng = np.random.default_rng(3)
    numbers = rng.integers(0, 200, 1300).astype(dtype.to_pandas_dtype())
    array = pa.array(numbers, dtype, mask=rng.random(1300) < null_share)
    for hashes in (value_hashes, partial(column_contributions, "c")):
        parts = [hashes(array.slice(start, 100)) for start in range(0, 1300, 100)]
        assert hashes(array).tolist() == np.concatenate(parts).tolist()


def test_loops_over_many_values_give_what_loops_over_few_give() -> None:
    numbers = np.random.default_rng(4).integers(0, 300, 100_000)
    assert by_small_codes(numbers)[:1000] == by_small_codes(numbers[:1000])
    low, high = extremes.extreme_numbers(numbers, None, 0) or (None, None)
    assert (low, high) == (numbers.min(), numbers.max())


def by_small_codes(numbers: npt.NDArray[np.int64]) -> list[int]:
    codes, firsts = np.empty(len(numbers), np.int32), np.empty(len(numbers), np.int32)
    count = integers.code_words(numbers.view(np.uint64), None, 1000, codes, firsts)
    assert numbers[firsts[:count]][codes].tolist() == numbers.tolist()
    return codes.tolist()


@pytest.mark.parametrize("size", [0, 1, 1000, 1 << 17])
def test_bytes_take_the_bits_that_their_frequencies_tell(size: int) -> None:
    data = np.random.default_rng(size).geometric(0.1, size).clip(0, 255).astype(np.uint8)
    counts = [count for count in np.bincount(data, minlength=256).tolist() if count]
    expected = sum(count * math.log2(size / count) for count in counts)
    assert bits.frequency_bits(data) == pytest.approx(expected)


def joined(nodes: int, batches: list[list[tuple[int, int]]]) -> list[int]:
    """Labels of nodes that the native loops join, batch by batch."""
    parents = np.arange(nodes)
    for edges in batches:
        left, right = (np.array([edge[side] for edge in edges], np.int64) for side in (0, 1))
        components.join(parents, left, right)
    components.label(parents)
    return parents.tolist()


def labels_by_sets(nodes: int, edges: list[tuple[int, int]]) -> list[int]:
    """The smallest node of each component, by sets that absorb each other."""
    together = {node: {node} for node in range(nodes)}
    for one, other in edges:
        both = together[one] | together[other]
        together.update(dict.fromkeys(both, both))
    return [min(together[node]) for node in range(nodes)]


@given(st.integers(1, 40), st.data())
def test_connected_nodes_get_the_smallest_of_them_in_whatever_batches_edges_come(
    nodes: int, data: st.DataObject
) -> None:
    node = st.integers(0, nodes - 1)
    batches = data.draw(st.lists(st.lists(st.tuples(node, node), max_size=40), max_size=4))
    expected = labels_by_sets(nodes, [edge for edges in batches for edge in edges])
    assert joined(nodes, batches) == expected


@pytest.mark.parametrize("nodes", [(1 << 16) - 1, (1 << 16) + 1])
def test_long_chains_are_one_component_from_whichever_end_they_grow(nodes: int) -> None:
    """Fewer and more edges than the loop keeps the lock for."""
    up = [(node, node + 1) for node in range(nodes - 1)]
    for edges in (up, up[::-1], [(b, a) for a, b in up]):
        assert joined(nodes, [edges]) == [0] * nodes
    assert joined(nodes, []) == list(range(nodes))


@pytest.mark.parametrize("edge", [(0, 3), (3, 0), (-1, 0), (0, -1), (2**62, 0)])
def test_edges_that_end_at_no_node_are_refused(edge: tuple[int, int]) -> None:
    with refuses(ValueError, "malformed"):
        joined(3, [[(0, 1), edge]])
    with refuses(ValueError, "malformed"):
        joined(0, [[edge]])


def test_buffers_that_are_too_short_are_refused() -> None:
    out = np.zeros(4, dtype=np.uint64)
    few, many = pa.py_buffer(bytes(20)), pa.py_buffer(bytes(64))
    calls: dict[str, Callable[[], None]] = {
        "integers": lambda: hashing.hash_integers(few, 8, True, None, 0, None, out),
        "an offset": lambda: hashing.hash_integers(many, 8, True, None, 5, None, out),
        "a bitmap": lambda: hashing.hash_integers(many, 8, True, pa.py_buffer(b""), 0, 1, out),
        "booleans": lambda: hashing.hash_booleans(None, None, 0, 1, out),
        "floats": lambda: hashing.hash_floats(few, 8, None, 0, 1, out),
        "decimals": lambda: hashing.hash_decimals(few, 16, None, 0, 1, out),
        "bytes": lambda: hashing.hash_bytes(few, 6, None, 0, 1, out),
        "hashes": lambda: hashing.put_hashes(out[:3], None, 0, 1, out),
        "few offsets": lambda: hashing.hash_strings(few, many, True, None, 0, 1, out),
        "offsets beyond": lambda: hashing.hash_strings(
            pa.py_buffer(np.array([0, 9, 9, 9, 65], np.int32)), many, False, None, 0, 1, out
        ),
        "falling offsets": lambda: hashing.hash_strings(
            pa.py_buffer(np.array([0, 9, 8, 9, 9], np.int32)), many, False, None, 0, 1, out
        ),
        "counts": lambda: hashing.hash_lists(
            np.array([1, 1, 1, 2]), out, None, 0, None, 0, 1, np.zeros(4, dtype=np.uint64)
        ),
        "a count below zero": lambda: hashing.hash_lists(
            np.array([1, -1, 1, 1]), out, None, 0, None, 0, 1, np.zeros(4, dtype=np.uint64)
        ),
        "codes": lambda: hashing.add_by_code(
            pa.py_buffer(np.array([0, 1, -1, 0], np.int32)), 4, out, None, 0, out
        ),
    }
    for name, call in calls.items():
        with refuses(ValueError, "malformed"):
            call()
            pytest.fail(name)


@pytest.mark.parametrize(
    ("preparation", "expected"),
    [
        ("", "lsm_fragment.native is not compiled for this Python"),
        (
            "import sys; sys.byteorder = 'big'; ",
            "lsm_fragment.native needs a little-endian machine",
        ),
    ],
    ids=["not compiled", "big-endian"],
)
def test_what_cannot_run_says_so_when_it_is_imported(
    tmp_path: Path, preparation: str, expected: str
) -> None:
    sources = Path(lsm_fragment.__file__).parent
    shutil.copytree(
        sources, tmp_path / "lsm_fragment", ignore=shutil.ignore_patterns("*.so", "*.c")
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{preparation}import lsm_fragment.container.block"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"ImportError: {expected}" in done.stderr
