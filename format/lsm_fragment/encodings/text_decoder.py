"""Decodes a large VARLEN chunk in steps: the lengths, then the strings of some rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_fragment.arrays.types import is_large_offsets
from lsm_fragment.encodings.allowance import ANY_VALUES, Allowance, charge_nothing
from lsm_fragment.encodings.node import MAX_UNBACKED_VALUES, WORD_BYTES, Encoding
from lsm_fragment.encodings.reading import checked
from lsm_fragment.native.encodings.decode import Cursor


class TextDecoder:
    """Decodes a chunk whose payload begins with text, from which the rest is apart (`can_decode`)."""

    def __init__(
        self,
        meta: bytes,
        rest: bytes | memoryview,
        dtype: pa.DataType,
        rows: int,
        *,
        max_bytes: int,
        apart_bytes: int,
    ) -> None:
        """rest: the payload behind its first `apart_bytes`. max_bytes: see `decode_array`. Raises
        `ValueError`."""
        raw_bytes = apart_bytes + len(rest)
        charge = Allowance(max_bytes, None).charge
        cursor = Cursor(meta, pa.py_buffer(rest), max(MAX_UNBACKED_VALUES, 8 * raw_bytes), charge)
        cursor.take(rows)
        size = cursor.param
        self._last = np.frombuffer(cursor.buffer(size - apart_bytes), dtype=np.uint8)
        """The text that is not apart: less than a word."""
        offsets = cursor.child_integers(rows).offsets(size, is_large_offsets(dtype))
        cursor.finish()
        self._dtype = dtype
        self._apart_bytes = apart_bytes
        self._offsets = np.frombuffer(offsets, np.int64 if is_large_offsets(dtype) else np.int32)
        self._start = 0

    @property
    def is_done(self) -> bool:
        """Whether all rows were taken."""
        return self._start == len(self._offsets) - 1

    def rows_within(self, max_bytes: int) -> int:
        """Returns how many of the next rows have at most `max_bytes` of text; at least 1."""
        limit = int(self._offsets[self._start]) + max_bytes
        stop = int(np.searchsorted(self._offsets, limit, side="right")) - 1
        return max(stop - self._start, 1)

    def text_bytes(self, rows: int) -> int:
        """Returns how many bytes of the text that is apart the next rows have."""
        start, stop = self._offsets[[self._start, self._start + rows]].tolist()
        return max(0, min(int(stop), self._apart_bytes) - int(start))

    def next_rows(self, rows: int, text: npt.NDArray[Any]) -> pa.Array:
        """Returns the next rows. text: their `text_bytes`. Raises `ValueError`."""
        offsets = self._offsets[self._start : self._start + rows + 1]
        start, stop = int(offsets[0]), int(offsets[-1])
        if stop > self._apart_bytes:
            begin = max(0, start - self._apart_bytes)
            text = np.concatenate([text, self._last[begin : stop - self._apart_bytes]])
        self._start += rows
        buffers = [None, pa.py_buffer(offsets - offsets[0]), pa.py_buffer(text)]
        return checked(pa.Array.from_buffers(self._dtype, rows, buffers, 0))


def can_decode(meta: bytes, rows: int, apart_bytes: int) -> bool:
    """Returns whether a `TextDecoder` decodes the chunk: its root is text without nulls, of which
    `apart_bytes` are the whole words. Raises `ValueError` if its nodes are damaged."""
    cursor = Cursor(meta, pa.py_buffer(b""), ANY_VALUES, charge_nothing)
    is_text = cursor.take(rows) == Encoding.VARLEN and not cursor.null_count
    return is_text and apart_bytes == cursor.param - cursor.param % WORD_BYTES
