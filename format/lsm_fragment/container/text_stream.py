"""Decodes a large chunk of text some rows at a time, so that a merge has only some of it in memory."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from lsm_fragment.arrays.types import is_binary_like
from lsm_fragment.blocks.compression import FrameReader, content_bytes, decompress, window_bytes
from lsm_fragment.blocks.layout import Codec
from lsm_fragment.blocks.parts import PayloadPart, read_parts
from lsm_fragment.container.block import Block
from lsm_fragment.encodings.text_decoder import TextDecoder, can_decode
from lsm_fragment.limits import chunk_limit_bytes

PIECE_BYTES: Final = 2 << 20
"""Decode this much text at a time: it stays in the processor's cache until its rows are gathered."""
_MIN_RATIO: Final = 2
"""Stream only chunks that would take this many times as much memory if they were decoded at once."""
_ROW_BYTES: Final = 8
"""The memory of a row's offset."""


class TextStream:
    """The strings of one chunk, from the first row to the last. `text_stream` makes one."""

    def __init__(
        self, block: Block, dtype: pa.DataType, text: PayloadPart, rest: PayloadPart
    ) -> None:
        """text, rest: the parts of the payload."""
        self._block = block
        self._dtype = dtype
        stored = memoryview(block.stored)
        self._text, self._rest = stored[text.start : text.stop], stored[rest.start : rest.stop]

    @property
    def held_bytes(self) -> int:
        """The memory that the stream takes, with rows that are being decoded."""
        header = self._block.header
        work = window_bytes(self._text) + PIECE_BYTES
        return header.stored_bytes + _ROW_BYTES * header.rows + work

    @property
    def saves_memory(self) -> bool:
        """Whether the stream takes far less memory than all strings."""
        return _MIN_RATIO * self.held_bytes <= self._block.header.raw_bytes

    def next(self) -> pa.Array:
        """Returns the next rows. Raises `CorruptFragmentError`."""
        with self._block.decoding():
            decoder = self._decoder
            rows = decoder.rows_within(PIECE_BYTES)
            text = np.frombuffer(pa.allocate_buffer(decoder.text_bytes(rows)), dtype=np.uint8)
            self._frame.read_into(text.data)
            array = decoder.next_rows(rows, text)
            if decoder.is_done:
                self._frame.finish()
            return array

    @cached_property
    def _frame(self) -> FrameReader:
        return FrameReader(self._text)

    @cached_property
    def _decoder(self) -> TextDecoder:
        header, size = self._block.header, content_bytes(self._text)
        return TextDecoder(
            self._block.meta,
            decompress(Codec.ZSTD, self._rest, header.raw_bytes - size),
            self._dtype,
            header.rows,
            max_bytes=chunk_limit_bytes(header.stored_bytes),
            apart_bytes=size,
        )


def text_stream(block: Block, dtype: pa.DataType) -> TextStream | None:
    """Returns a stream of the chunk's strings; None if it is not text, or so small that one saves nothing.

    A damaged chunk has none: the error comes from decoding it.
    """
    header = block.header
    if header.codec is not Codec.ZSTD_PARTS or header.raw_bytes < _MIN_RATIO * PIECE_BYTES:
        return None
    if not is_binary_like(dtype) or header.raw_bytes > chunk_limit_bytes(header.stored_bytes):
        return None
    try:
        text, *rest = read_parts(block.stored, header.stored_bytes)
        stored = memoryview(block.stored)[text.start : text.stop]
        if len(rest) != 1 or not can_decode(block.meta, header.rows, content_bytes(stored)):
            return None
    except ValueError:
        return None
    stream = TextStream(block, dtype, text, rest[0])
    return stream if stream.saves_memory else None
