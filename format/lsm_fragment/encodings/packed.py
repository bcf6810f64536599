"""PACKED: integers by bits, in blocks; the survey of a sample tells how many bits they take."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lsm_fragment import native
from lsm_fragment.blocks.compression import compressed_bytes
from lsm_fragment.encodings.constant import encode_constant
from lsm_fragment.encodings.node import WORD_BYTES, Encoding, IntArray, Node
from lsm_fragment.encodings.reading import NodeShape, decode_integers, integers_fit

ENCODING = Encoding.PACKED
SHAPE = NodeShape(has_width=True, has_param=True)
fits, decode = integers_fit, decode_integers

U8 = npt.NDArray[np.uint8]

BYTE_BITS: Final = 8
_BLOCK: Final = native.encodings.bits.BLOCK_VALUES
_SAMPLE_BLOCKS: Final = 4
MIN_RUN: Final = 16
"""Average length of runs from which they are stored as such."""
_MIN_ALIKE: Final = 64
"""The fewest values of which a codec makes anything."""
_ALIKE_WIDTHS: Final = (1, 2, 4, 8)
_MAX_ALIKE_SPAN: Final = 288
"""How far above the base values may reach for 8 bits each: the few beyond 255 are patched."""
_PAYS: Final = 0.85
"""The share of packed bits that a codec has to reach, for the time that it takes."""


class Survey(NamedTuple):
    """What a sample of integers tells of all."""

    by_values: int
    """Bits of the sample when every block holds values."""
    by_steps: int
    by_less: int
    """Bits of the sample when each block holds what takes less."""
    value_base: int
    value_span: int
    """How far above the base values reach."""
    step_base: int
    step_span: int
    changes: int
    """How many values differ from the one before."""
    values: int
    """How many values the sample has."""

    @property
    def bits(self) -> float:
        """The bits that a value takes packed."""
        return self.by_less / max(1, self.values)

    @property
    def has_runs(self) -> bool:
        return (self.changes + 1) * MIN_RUN <= self.values or not self.changes


def sampled(values: IntArray) -> IntArray:
    """Returns a few blocks of the values, in their order."""
    if len(values) <= _SAMPLE_BLOCKS * _BLOCK:
        return values
    sample = np.empty(_SAMPLE_BLOCKS * _BLOCK, dtype=values.dtype)
    native.arrays.integers.copy_blocks(native.as_words(values), _BLOCK, native.as_words(sample))
    return sample


def survey(sample: IntArray) -> Survey:
    return Survey(*native.encodings.bits.survey(sample), values=len(sample))


def encode_backed_ints(values: IntArray) -> Node:
    """Encodes integers so that each takes at least a byte."""
    if len(values) == 0:
        return encode_constant(0)
    return pack(values, min_width=BYTE_BITS)


def pack(
    values: IntArray, *, min_width: int = 0, values_too: bool = True, steps_too: bool = False
) -> Node:
    room = _Room(len(values))
    size, least = native.encodings.bits.pack(
        values, min_width, values_too, steps_too, room.entries, room.data
    )
    return _node(len(values), room, size, least, is_dense=True)


class _Room:
    """Memory for packed values, of which `buffer` is a node's only buffer: the entries of the blocks, and
    the data behind them. They need not be joined, since entries are whole words."""

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
    """Returns the node of packed values. size: the bytes of their data."""
    buffers = (room.buffer(size),)
    return Node(
        encoding=Encoding.PACKED,
        length=length,
        width=width,
        param=size,
        buffers=buffers,
        is_dense=is_dense,
    )


def encode_alike(values: IntArray, sample: IntArray, seen: Survey) -> Node | None:
    """Packs values or steps alike in all blocks, if a codec makes fewer bits of that than packing each
    block for itself does."""
    holds_steps = seen.by_steps < seen.by_values
    base, span = (seen.step_base, seen.step_span) if holds_steps else seen[3:5]
    if span >= _MAX_ALIKE_SPAN or len(values) < _MIN_ALIKE:
        return None
    width = next(w for w in _ALIKE_WIDTHS if span < _MAX_ALIKE_SPAN >> (BYTE_BITS - w))
    room = _Room(len(sample))
    size = _pack_alike(sample, base, width, room, holds_steps=holds_steps)
    if size < 0 or _coded_bits(room.data[:size]) > _PAYS * min(seen.by_steps, seen.by_values):
        return None
    room = _Room(len(values))
    size = _pack_alike(values, base, width, room, holds_steps=holds_steps)
    return None if size < 0 else _node(len(values), room, size, width, is_dense=False)


def _pack_alike(values: IntArray, base: int, width: int, room: _Room, *, holds_steps: bool) -> int:
    """Packs values or steps by one width. Returns the bytes of data; -1 if they need more bits."""
    base &= 2**64 - 1
    return native.encodings.bits.pack_alike(
        values, base, width, holds_steps, room.entries, room.data
    )


def _coded_bits(data: U8) -> float:
    """Returns the bits that a codec makes of bytes: by their frequencies, or by what repeats among them.

    A small sample shows repeats when it is compressed, but frequencies only when they are counted.
    """
    by_frequency = native.encodings.bits.frequency_bits(data)
    return min(max(by_frequency, len(data)), BYTE_BITS * compressed_bytes(data.data))
