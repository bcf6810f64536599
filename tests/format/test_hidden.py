"""What nulls hide counts for nothing: equal rows give the same bytes and the same row groups."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.moves import list_parts, present_items
from lsm_fragment.arrays.nested import build_fixed_lists, build_struct, fixed_items, null_mask
from lsm_fragment.arrays.sizes import cumulative_bits, heaviest_value_bytes, total_bits
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.arrays.types import is_binary_like
from lsm_fragment.blocks.layout import BlockKind
from lsm_fragment.container.chunk import make_chunk
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.keys.extremes import bytes_of_values
from tests.support.bits import bits_of
from tests.support.fragments import write_fragment
from tests.support.loops import loops
from tests.support.outside import any_array, any_type
from tests.support.samples import SAMPLES, sample_array

SEEDS = 300


def with_garbage(array: pa.Array) -> pa.Array:
    """Returns the same values with bytes under nulls, within structs and lists of fixed size too."""
    dtype = array.type
    if isinstance(dtype, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(dtype, with_garbage(array.storage))
    if pt.is_struct(dtype) and len(array):
        children = [with_garbage(array.field(n)) for n in range(dtype.num_fields)]
        return build_struct(dtype, len(array), children, null_mask(array))
    if pt.is_fixed_size_list(dtype) and len(array):
        items = with_garbage(fixed_items(array))
        return build_fixed_lists(dtype, len(array), items, null_mask(array))
    if not array.null_count or pt.is_nested(dtype) or pt.is_null(dtype) or pt.is_dictionary(dtype):
        return array
    if pt.is_string_view(dtype) or pt.is_binary_view(dtype):
        return array
    if is_binary_like(dtype):
        filled = array.fill_null(pa.scalar(b"hidden", pa.binary()).cast(dtype))
        data = filled.buffers()[1:]
    elif pt.is_boolean(dtype):
        data = array.fill_null(True).buffers()[1:]
    else:
        values = bytes_of_values(array).copy()
        values[np.asarray(array.is_null())] = 0x5A
        data = [pa.py_buffer(values)]
    return pa.Array.from_buffers(dtype, len(array), [bitmap_of(array), *data])


def bitmap_of(array: pa.Array) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.asarray(array.is_valid()), bitorder="little"))


def block_of(array: pa.Array) -> bytes:
    return make_chunk(array, level=1).block(BlockKind.DATA)


def assert_same(clean: pa.Array, dirty: pa.Array) -> None:
    assert bits_of(clean) == bits_of(dirty)
    one, other = to_storage(clean), to_storage(dirty)
    assert cumulative_bits(one).tolist() == cumulative_bits(other).tolist()
    assert total_bits(one) == total_bits(other) == cumulative_bits(one)[-1]
    assert heaviest_value_bytes(one) == heaviest_value_bytes(other)
    chunks = [make_chunk(array, level=1) for array in (one, other)]
    assert chunks[0] == chunks[1]


@loops("name", SAMPLES)
def test_bytes_under_nulls_of_every_type_change_nothing(name: str) -> None:
    for repeat in (1, 40):
        array = sample_array(name, repeat)
        for start in (0, 1, 3):
            assert_same(array.slice(start), with_garbage(array.slice(start)))


def fixed_lists(items: pa.Array, valid: list[bool]) -> pa.Array:
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.list_(items.type, 2), len(valid), [bitmap], children=[items])


def test_elements_under_null_lists_of_fixed_size_are_not_stored() -> None:
    valid = [True, False, True, False]
    for items in (
        pa.array([1, 2, 3, 4, 5, 6, 7, 8]),
        pa.array(["a", "b", "hidden", "x", None, "d", "e", "f"]),
        pa.array([[1], None, [2, 3], [4], [], [5], [6], None]),
        pa.array([{"x": n, "y": str(n)} for n in range(8)]),
        fixed_lists(pa.array(range(16)), [True, True, True, False] * 2),
    ):
        dirty = fixed_lists(items, valid)
        clean = pa.array(dirty.to_pylist(), dirty.type)
        assert_same(clean, dirty)
        for start, rows in ((1, 3), (1, 1), (2, 1), (4, 0)):
            assert_same(clean.slice(start, rows), dirty.slice(start, rows))


def test_elements_that_are_null_already_are_not_copied() -> None:
    array = pa.array([[1, 2], None, [3, None]], pa.list_(pa.int64(), 2))
    assert present_items(array).buffers()[1].address == fixed_items(array).buffers()[1].address


def test_what_null_structs_and_lists_hide_changes_nothing() -> None:
    texts = pa.array(["a", "hidden", "c", "hidden too"])
    bitmap = pa.py_buffer(np.packbits([True, False, True, False], bitorder="little"))
    dtype = pa.struct([("t", pa.string()), ("l", pa.list_(pa.string()))])
    lists = pa.array([["x"], ["hidden"], None, []], pa.list_(pa.string()))
    struct = pa.Array.from_buffers(dtype, 4, [bitmap], children=[texts, lists])
    assert_same(pa.array(struct.to_pylist(), dtype), struct)
    offsets = pa.py_buffer(np.array([0, 1, 2, 3, 4], np.int32))
    some = pa.Array.from_buffers(pa.list_(pa.string()), 4, [bitmap, offsets], children=[texts])
    assert list_parts(some)[0].tolist() == [1, 0, 1, 0]
    assert_same(pa.array(some.to_pylist(), some.type), some)


def test_row_groups_do_not_depend_on_bytes_under_nulls() -> None:
    rows = 200
    valid = np.arange(rows) % 2 == 0
    whole = pa.array(["x" * 40] * rows)
    dirty = pa.Array.from_buffers(
        pa.string(),
        rows,
        [pa.py_buffer(np.packbits(valid, bitorder="little")), *whole.buffers()[1:]],
    )
    clean = pa.array(["x" * 40 if known else None for known in valid])
    assert dirty.equals(clean)
    keys = pa.array(range(rows))
    options = WriterOptions(64, target_row_group_bytes=700)
    files = [write_fragment(pa.table({"k": keys, "v": v}), "k", options) for v in (clean, dirty)]
    assert files[0] == files[1]


def test_arrays_of_others_are_stored_as_their_values_are() -> None:
    for seed in range(SEEDS):
        random = np.random.default_rng(seed)
        dtype = any_type(random)
        array = to_storage(any_array(random, dtype, int(random.integers(1, 9))))
        if pt.is_dictionary(array.type) or _has_maps(array.type):
            continue
        again = array.take(pa.array(range(len(array))))
        assert bits_of(again) == bits_of(array), seed
        assert cumulative_bits(again).tolist() == cumulative_bits(array).tolist(), seed
        assert block_of(again) == block_of(array), seed


def _has_maps(dtype: pa.DataType) -> bool:
    if not pt.is_nested(dtype):
        return False
    return pt.is_map(dtype) or any(_has_maps(dtype.field(n).type) for n in range(dtype.num_fields))
