"""Decodes chunks: in the merging thread, or before it needs them in others.

The merging thread reads every chunk, and reserves memory for it. Another thread that decodes it may not wait
for memory, so it takes only what is free; where that is too little, the merging thread decodes the chunk when
it needs it, and waits or spills as always. So memory and time decide how far ahead chunks are decoded, but
not what becomes of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

import pyarrow as pa
from msgspec import Struct

from compactor.merge.tasks import OrderedTasks
from compactor.resources.budget import MemoryBudget
from compactor.resources.merge_plan import decode_reserve_bytes
from compactor.resources.reservation import Reservation
from compactor.resources.stopwatch import Stopwatch
from lsm_fragment.blocks.layout import BlockHeader
from lsm_fragment.container.block import Block
from lsm_fragment.container.text_stream import TextStream

LAP: Final = "decode"
"""The stopwatch's name for decoding."""
_WAIT: Final = "thread wait"
_MIN_BYTES: Final = 1 << 20
"""Another thread decodes only chunks of at least this many raw bytes."""


class _NoRoomError(Exception):
    """Too little memory is free to decode a chunk ahead."""


class Decoding:
    """The decoding of one chunk, with the memory that it takes: at once, or some rows at a time."""

    def __init__(
        self,
        block: Block,
        dtype: pa.DataType,
        memory: Reservation,
        *,
        keep_templates: bool = False,
        keep_words: bool = False,
        stream: TextStream | None = None,
    ) -> None:
        """memory: the block's; it grows by what decoding at once takes. keep_templates,
        keep_words: see `lsm_fragment.encodings.coding.decode_array`. stream: decodes some rows at a time, in
        the memory."""
        self.block = block
        self.memory = memory
        self.rows = block.header.rows
        """The rows that no result has had."""
        self._dtype = dtype
        self._keep_templates = keep_templates
        self._keep_words = keep_words
        self._stream = stream
        self._wait: Callable[[], pa.Array | None] | None = None
        """Waits for the thread that decodes the chunk ahead."""
        self._seconds = 0.0

    @property
    def is_stream(self) -> bool:
        return self._stream is not None

    @property
    def is_begun(self) -> bool:
        """Whether another thread decodes the chunk, or its next rows."""
        return self._wait is not None

    def begin(self, tasks: OrderedTasks, reserve_bytes: int = 0) -> None:
        """Decodes the chunk, or its next rows, in another thread, unless handing it over would take
        longer. reserve_bytes: part of the limit that stays free."""
        if self.block.header.raw_bytes >= _MIN_BYTES and not self.is_begun:
            self._wait = partial(tasks.wait, tasks.begin(partial(self._ahead, reserve_bytes)))

    def result(self, watch: Stopwatch) -> pa.Array:
        """Returns the storage array, or its next rows. Raises what `Block.decode` and `Reservation.grow`
        raise."""
        array = self._result(watch)
        self.rows -= len(array)
        return array

    def _result(self, watch: Stopwatch) -> pa.Array:
        if self._wait is not None:
            with watch.on(_WAIT):
                array = self._wait()
            self._wait = None
            watch.add({LAP: self._seconds})
            if array is not None:
                return array
        return self._decode(self.memory.grow)

    def _ahead(self, reserve_bytes: int) -> pa.Array | None:
        """Returns the storage array, or None if too little memory is free."""
        started, before = time.thread_time(), self.memory.size
        try:
            return self._decode(partial(self._try_grow, reserve_bytes))
        except _NoRoomError:
            self.memory.resize(before)
            return None
        finally:
            self._seconds = time.thread_time() - started

    def _decode(self, reserve: Callable[[int], None]) -> pa.Array:
        if self._stream is not None:
            return self._stream.next()
        return self.block.decode(
            self._dtype,
            keep_dictionary=True,
            keep_templates=self._keep_templates,
            keep_words=self._keep_words,
            reserve=reserve,
        )

    def _try_grow(self, reserve_bytes: int, size: int) -> None:
        if not self.memory.try_grow(size, reserve_bytes=reserve_bytes):
            raise _NoRoomError


class DecodingAhead(Struct, frozen=True):
    """The threads of a pass that decode chunks ahead, and the condition under which they do."""

    tasks: OrderedTasks
    budget: MemoryBudget
    payload_bytes: int
    """The most that any chunk takes as it is read, stored and decompressed."""

    def has_room(self, chunks: int) -> bool:
        return may_decode_ahead(self.budget, chunks * self.payload_bytes)

    def begin(self, chunk: Decoding) -> None:
        """Decodes a chunk ahead in the room that there is."""
        chunk.begin(self.tasks, _reserve_bytes(self.budget))


def payload_bytes(header: BlockHeader) -> int:
    """Returns the bytes of a block's payload, stored and decompressed."""
    return header.stored_bytes + header.raw_bytes


def may_decode_ahead(budget: MemoryBudget, size: int) -> bool:
    """Returns whether memory is free enough to read `size` bytes before they are needed."""
    return budget.has_room(size, _reserve_bytes(budget))


def _reserve_bytes(budget: MemoryBudget) -> int:
    return decode_reserve_bytes(budget.limit_bytes, budget.need_bytes)
