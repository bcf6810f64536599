"""Integers packed by bits: what comes back, how few bytes it takes, and what no writer writes."""

from __future__ import annotations

import contextlib
import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_fragment import native
from lsm_fragment.container.chunk import make_chunk
from lsm_fragment.encodings.coding import decode_array, encode_array
from lsm_fragment.encodings.integers import encode_ints
from lsm_fragment.encodings.node import Encoding, Node, join_buffers, pack_nodes
from lsm_fragment.encodings.packed import encode_backed_ints, sampled
from tests.support.spec_reader import Cursor, unpacked
from tests.support.wording import refuses

INT_TYPES = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
BLOCK = native.encodings.bits.BLOCK_VALUES


def read(node: Node, dtype: pa.DataType) -> pa.Array:
    return decode_array(pack_nodes(node), join_buffers(node), dtype, node.length)


@st.composite
def numbers(draw: st.DrawFn, dtype: type[Any]) -> np.ndarray[Any, Any]:
    """Integers of any width, in runs, in steps, or around a value with a few far away."""
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    length = draw(st.sampled_from([1, 2, 3, 31, 32, 33, 100, 1023, 1024, 1025, 2049, 5000]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    center = draw(st.integers(low, high) | st.sampled_from([low, high, 0]))
    spread = 1 << draw(st.integers(0, 8 * np.dtype(dtype).itemsize))
    values = rng.integers(
        max(low, center - spread), min(high, center + spread), length, dtype, endpoint=True
    )
    shape = draw(st.sampled_from(["loose", "sorted", "summed", "runs", "far", "multiples"]))
    if shape == "sorted":
        values.sort()
    if shape == "summed":
        values = np.cumsum(values, dtype=dtype)
    if shape == "runs":
        values = np.repeat(values, 40)[:length]
    if shape == "far":
        far = rng.integers(low, high, length, dtype, endpoint=True)
        values = np.where(rng.random(length) < 0.02, far, values)
    if shape == "multiples":
        values = values // dtype(100) * dtype(100)
    return values


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.float64])
def test_a_sample_has_blocks_from_the_first_to_the_last(dtype: type[Any]) -> None:
    for blocks in (1, 3, 4):
        values = np.arange(blocks * BLOCK).astype(dtype)
        assert sampled(values) is values
    values = np.arange(11 * BLOCK + 7).astype(dtype)
    parts = [values[start * BLOCK : (start + 1) * BLOCK] for start in (0, 3, 6, 10)]
    assert sampled(values).tolist() == np.concatenate(parts).tolist()


@given(st.data(), st.sampled_from(INT_TYPES))
def test_integers_come_back(data: st.DataObject, dtype: type[Any]) -> None:
    values = data.draw(numbers(dtype))
    for node in (encode_ints(values), encode_backed_ints(values)):
        assert read(node, pa.from_numpy_dtype(dtype)).to_numpy().tolist() == values.tolist()
        wide = read(node, pa.uint64()).to_numpy()
        assert wide.tolist() == values.astype(np.uint64).tolist()
    most = 8 * len(values) + 24 * -(-len(values) // BLOCK) + 16
    assert len(join_buffers(encode_ints(values))) <= most


@given(st.data(), st.sampled_from(INT_TYPES))
def test_packed_integers_are_what_the_specification_says(
    data: st.DataObject, dtype: type[Any]
) -> None:
    values = data.draw(numbers(dtype))
    node = encode_backed_ints(values)
    cursor = Cursor.__new__(Cursor)
    cursor.raw, cursor.at = bytes(join_buffers(node)), 0
    found = unpacked(cursor, node.width, node.length, node.param)
    assert found == values.astype(np.uint64).tolist()


@pytest.mark.parametrize("length", [1, 7, 8, 9, 1023, 1024, 1025])
@pytest.mark.parametrize("far", [0, 20])
def test_values_of_every_width_are_packed_within_the_room_that_they_have(
    length: int, far: int
) -> None:
    rng = np.random.default_rng(length)
    entries = np.empty(native.encodings.bits.ENTRY_BYTES * -(-length // BLOCK), np.uint8)
    most = native.encodings.bits.max_bytes(length)
    for width in range(65):
        values = rng.integers(0, 1 << width, length, np.uint64)
        values[far :: far or length + 1] = 2**64 - 1  # patches
        for with_deltas in (False, True):
            room = np.full(most + 8, 0xA5, np.uint8)
            size, _ = native.encodings.bits.pack(values, 0, True, with_deltas, entries, room[:most])
            assert room[most:].tolist() == [0xA5] * 8
            node = blocks_of(bytes(entries), bytes(room[:size]), length, width=0)
            assert read(node, pa.uint64()).to_numpy().tolist() == values.tolist()


@given(
    st.sampled_from([pa.float16(), pa.float32(), pa.float64()]),
    st.binary(min_size=8, max_size=800),
    st.booleans(),
)
def test_floats_come_back_to_the_bit(dtype: pa.DataType, data: bytes, repeats: bool) -> None:
    size = dtype.bit_width // 8
    data = data[: len(data) // size * size] * (5 if repeats else 1)
    array = pa.Array.from_buffers(dtype, len(data) // size, [None, pa.py_buffer(data)])
    encoded = encode_array(array)
    back = decode_array(encoded.meta, encoded.raw, dtype, len(array))
    assert back.buffers()[1].to_pybytes()[: len(data)] == data


@given(st.data(), st.sampled_from(INT_TYPES))
def test_nulls_take_the_place_of_any_value(data: st.DataObject, dtype: type[Any]) -> None:
    values = data.draw(numbers(dtype))
    mask = np.random.default_rng(len(values)).random(len(values)) < data.draw(st.floats(0, 1))
    array = pa.array(values, mask=mask)
    start = data.draw(st.integers(0, min(9, len(values) - 1)))
    for part in (array, array.slice(start)):
        encoded = encode_array(part)
        back = decode_array(encoded.meta, encoded.raw, array.type, len(part))
        assert back.equals(part)


@pytest.mark.parametrize(
    ("name", "values", "max_bits"),
    [
        ("steps", np.arange(65_536) * 1000 + 5, 0.3),
        ("clock", 10**15 + np.cumsum(np.arange(65_536) * 7919 % 100), 7.3),
        ("one far", np.where(np.arange(65_536) % 1000 == 7, 2**60, np.arange(65_536) % 100), 8),
        ("one far below", np.where(np.arange(65_536) % 999 == 7, -(2**60), np.arange(65_536) % 100), 8),
        ("resets", np.arange(65_536) % 5000 * 1000 + np.arange(65_536) * 7919 % 1000, 12),
        ("milliseconds", np.arange(65_536) * 7919 % 1000 * 10**6, 10.2),
    ],
)  # fmt: skip
def test_kinds_of_numbers_take_few_bits(name: str, values: Any, max_bits: float) -> None:
    chunk = make_chunk(pa.array(values), level=1)
    assert 8 * len(chunk.stored) / len(values) <= max_bits


def blocks_of(entries: bytes, data: bytes, length: int, *, width: int) -> Node:
    return Node(
        encoding=Encoding.PACKED,
        length=length,
        width=width,
        param=len(data),
        buffers=(entries, data),
    )


def entry(base=0, width=0, kind=0, patches=0, patch_width=0, reserved=0) -> bytes:
    return struct.pack("<QBBHBBBB", base, width, kind, patches, patch_width, reserved, 0, 0)


FORGED = {
    "a width above 64": (entry(width=65), bytes(100)),
    "a block narrower than the node says": (entry(width=3), bytes(4)),
    "too few bytes": (entry(width=8), bytes(9)),
    "too many bytes": (entry(width=8), bytes(11)),
    "no first value": (entry(width=4, kind=1), b""),
    "another kind": (entry(kind=2, width=8), bytes(10)),
    "more patches than values": (entry(width=8, patches=11, patch_width=8), bytes(43)),
    "a patch beyond the values": (
        entry(width=8, patches=1, patch_width=8),
        bytes(10) + b"\x0a\0\1",
    ),
    "two patches of one value": (
        entry(width=8, patches=2, patch_width=8),
        bytes(10) + b"\x03\0\x03\0\1\2",
    ),
    "patches out of order": (
        entry(width=8, patches=2, patch_width=8),
        bytes(10) + b"\x03\0\x02\0\1\2",
    ),
    "patches above 64 bits": (entry(width=8, patches=1, patch_width=57), bytes(20)),
    "patches of no bits": (entry(width=8, patches=1), bytes(12)),
    "bits of no patches": (entry(width=8, patch_width=8), bytes(10)),
    "reserved bytes": (entry(width=8, reserved=1), bytes(10)),
    "too many blocks": (entry(width=8) * 2, bytes(10)),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_blocks_are_errors(name: str) -> None:
    entries, data = FORGED[name]
    with refuses(ValueError):
        read(blocks_of(entries, data, 10, width=4), pa.uint64())


def test_damaged_blocks_are_errors_or_other_numbers() -> None:
    rng = random.Random(5)
    values = np.where(np.arange(1500) % 50 == 7, 2**50, np.arange(1500) * 7919 % 1000)
    node = encode_ints(values)
    assert node.encoding is Encoding.PACKED
    (packed,), entry_bytes = map(bytes, node.buffers), 2 * native.encodings.bits.ENTRY_BYTES
    entries, data = packed[:entry_bytes], packed[entry_bytes:][: node.param]
    for _ in range(20_000):
        pieces = [bytearray(entries), bytearray(data[: rng.randrange(len(data) + 1)])]
        for piece in rng.choices(pieces, k=rng.randrange(1, 4)):
            if piece:
                piece[rng.randrange(len(piece))] = rng.randrange(256)
        forged = blocks_of(bytes(pieces[0]), bytes(pieces[1]), 1500, width=0)
        with contextlib.suppress(ValueError):
            read(forged, pa.from_numpy_dtype(rng.choice(INT_TYPES)))


@pytest.mark.parametrize("encoding", [Encoding.RUN_LENGTH, Encoding.MULTIPLE], ids=lambda e: e.name)
def test_encodings_of_integers_do_not_nest_without_end(encoding: Encoding) -> None:
    one = Node(encoding=Encoding.CONSTANT, length=1, param=1)
    children = (one,) if encoding is Encoding.MULTIPLE else (one, one)
    param = int(encoding is Encoding.MULTIPLE)
    head = pack_nodes(Node(encoding=encoding, length=1, param=param, children=children))[
        : 32 * len(children)
    ]
    with refuses(ValueError):
        decode_array(head * 3000 + pack_nodes(one), b"", pa.int64(), 1)
