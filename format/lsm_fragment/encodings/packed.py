"""PACKED: bit-packed integers, in blocks; a survey of a sample tells how many bits they take."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lsm_fragment import native
from lsm_fragment.blocks.compression import compressed_bytes
from lsm_fragment.encodings.constant import encode_constant
from lsm_fragment.encodings.node import WORD_BYTES, Encoding, IntArray, Node
from lsm_fragment.encodings.reading import NodeShape, decode_integers, integers_fit
from lsm_fragment.encodings.samples import CODEC_FRACTION

ENCODING = Encoding.PACKED
SHAPE = NodeShape(has_width=True, has_param=True)
fits, decode = integers_fit, decode_integers

U8 = npt.NDArray[np.uint8]

BYTE_BITS: Final = 8
_BLOCK: Final = native.encodings.bits.BLOCK_VALUES
_SAMPLE_BLOCKS: Final = 4
MIN_RUN: Final = 16
"""Store runs as such from this average length on."""
_MIN_UNIFORM: Final = 64
"""Try uniform packing from this number of values on: a codec saves nothing on fewer."""
_UNIFORM_WIDTHS: Final = (1, 2, 4, 8)
_MAX_UNIFORM_SPAN: Final = 288
"""Use 8 bits even if a few values lie this far above the base: those beyond 255 are patched."""


class Survey(NamedTuple):
    """What a sample of integers tells of the whole."""

    by_values: int
    """Bits of the sample if every block holds values."""
    by_deltas: int
    by_smaller: int
    """Bits of the sample if each block holds the smaller of both."""
    value_base: int
    value_span: int
    """Greatest value minus the base."""
    delta_base: int
    delta_span: int
    changes: int
    """Number of values that differ from their predecessor."""
    values: int
    """Number of values in the sample."""

    @property
    def bits(self) -> float:
        """Packed bits per value."""
        return self.by_smaller / max(1, self.values)

    @property
    def has_runs(self) -> bool:
        return (self.changes + 1) * MIN_RUN <= self.values or not self.changes


def sampled(values: IntArray) -> IntArray:
    """Returns a few blocks of the values, in order."""
    if len(values) <= _SAMPLE_BLOCKS * _BLOCK:
        return values
    sample = np.empty(_SAMPLE_BLOCKS * _BLOCK, dtype=values.dtype)
    native.arrays.integers.copy_blocks(native.as_words(values), _BLOCK, native.as_words(sample))
    return sample


def survey(sample: IntArray) -> Survey:
    return Survey(*native.encodings.bits.survey(sample), values=len(sample))


def encode_backed_ints(values: IntArray) -> Node:
    """Packs integers by at least a byte each."""
    if len(values) == 0:
        return encode_constant(0)
    return pack(values, min_width=BYTE_BITS)


def pack(
    values: IntArray, *, min_width: int = 0, with_values: bool = True, with_deltas: bool = False
) -> Node:
    room = _Room(len(values))
    size, least = native.encodings.bits.pack(
        values, min_width, with_values, with_deltas, room.entries, room.data
    )
    return _node(len(values), room, size, least, is_dense=True)


class _Room:
    """Memory for the only buffer of a node of packed values: the entries of the blocks, and the data behind
    them. It is not assembled from two, since entries are whole words."""

    def __init__(self, length: int) -> None:
        entries = native.encodings.bits.ENTRY_BYTES * -(-length // _BLOCK)
        room = np.empty(entries + native.encodings.bits.max_bytes(length), dtype=np.uint8)
        self._all, self.entries, self.data = room, room[:entries], room[entries:]

    def buffer(self, size: int) -> U8:
        """Returns entries and `size` bytes of data, padded to whole words."""
        stop = size + -size % WORD_BYTES
        self.data[size:stop] = 0
        return self._all[: len(self.entries) + stop]


def _node(length: int, room: _Room, size: int, width: int, *, is_dense: bool) -> Node:
    """Makes the node of packed values. size: the bytes of their data."""
    buffers = (room.buffer(size),)
    return Node(
        encoding=Encoding.PACKED,
        length=length,
        width=width,
        param=size,
        buffers=buffers,
        is_dense=is_dense,
    )


def encode_uniform(values: IntArray, sample: IntArray, seen: Survey) -> Node | None:
    """Packs all blocks by one base and width, if a codec then takes fewer bits than packing block by block;
    otherwise None."""
    holds_deltas = seen.by_deltas < seen.by_values
    if holds_deltas:
        base, span = seen.delta_base, seen.delta_span
    else:
        base, span = seen.value_base, seen.value_span
    if span >= _MAX_UNIFORM_SPAN or len(values) < _MIN_UNIFORM:
        return None
    width = next(w for w in _UNIFORM_WIDTHS if span < _MAX_UNIFORM_SPAN >> (BYTE_BITS - w))
    room = _Room(len(sample))
    size = _pack_uniform(sample, base, width, room, holds_deltas=holds_deltas)
    packed_bits = min(seen.by_deltas, seen.by_values)
    if size < 0 or _coded_bits(room.data[:size]) > CODEC_FRACTION * packed_bits:
        return None
    room = _Room(len(values))
    size = _pack_uniform(values, base, width, room, holds_deltas=holds_deltas)
    return None if size < 0 else _node(len(values), room, size, width, is_dense=False)


def _pack_uniform(
    values: IntArray, base: int, width: int, room: _Room, *, holds_deltas: bool
) -> int:
    """Packs values or deltas by one width. Returns the bytes of data; -1 if they need more bits."""
    base &= 2**64 - 1
    return native.encodings.bits.pack_uniform(
        values, base, width, holds_deltas, room.entries, room.data
    )


def _coded_bits(data: U8) -> float:
    """Estimates the compressed size in bits, by byte frequencies and by repeats.

    Compressing a small sample shows repeats; frequencies show only when counted.
    """
    by_frequency = native.encodings.bits.frequency_bits(data)
    return min(max(by_frequency, len(data)), BYTE_BITS * compressed_bytes(data.data))
