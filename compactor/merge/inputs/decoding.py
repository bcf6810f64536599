"""Decodes chunks: in the merging thread, or before it needs them in others.

The merging thread reads and charges every chunk. Another thread that decodes it may not wait for memory, so
it takes only what is free; where that is too little, the merging thread decodes the chunk when it needs it,
and waits or spills as always. So how far ahead chunks are decoded depends on memory and time, what becomes of
them does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from compactor.merge.tasks import OrderedTasks
from compactor.resources.budget import MemoryBudget
from compactor.resources.merge_plan import AHEAD_DIVISOR
from compactor.resources.stopwatch import Stopwatch
from lsm_fragment.container.block import Block
from lsm_fragment.threads import Work

STAGE: Final = "decode"
_WAIT: Final = "thread wait"
_MIN_BYTES: Final = 1 << 20
"""Raw bytes of a chunk from which another thread decodes it."""


class _NoRoomError(Exception):
    """Too little memory is free to decode a chunk ahead."""


class Decoding:
    """The decoding of one chunk, with the memory that it takes."""

    def __init__(
        self,
        block: Block,
        dtype: pa.DataType,
        budget: MemoryBudget,
        held: int,
        *,
        keep_templates: bool = False,
    ) -> None:
        """held: bytes that are charged for the chunk already; they are this object's now. keep_templates: see
        `lsm_fragment.encodings.coding.decode_array`."""
        self.block = block
        self._dtype = dtype
        self._budget = budget
        self._held = held
        self._keep_templates = keep_templates
        self._work: Work[pa.Array | None] | None = None
        self._seconds = 0.0

    @property
    def rows(self) -> int:
        return self.block.header.rows

    def begin(self, tasks: OrderedTasks) -> None:
        """Decodes the chunk in another thread, unless handing it over would take longer."""
        if self.block.header.raw_bytes >= _MIN_BYTES:
            self._work = tasks.begin(self._ahead)

    def result(self, tasks: OrderedTasks | None, watch: Stopwatch) -> pa.Array:
        """Returns the storage array. Raises what `Block.decode` and `MemoryBudget.charge` raise."""
        if self._work is not None and tasks is not None:
            with watch.on(_WAIT):
                array = tasks.wait(self._work)
            self._work = None
            watch.add({STAGE: self._seconds})
            if array is not None:
                return array
        return self._decode(self._charge)

    def close(self) -> None:
        """Releases the memory, once the array is charged elsewhere or dropped."""
        self._budget.discharge(STAGE, self._held)
        self._held = 0

    def _ahead(self) -> pa.Array | None:
        """Returns the storage array, or None if too little memory is free."""
        started, before = time.thread_time(), self._held
        try:
            return self._decode(self._try_charge)
        except _NoRoomError:
            self._budget.discharge(STAGE, self._held - before)
            self._held = before
            return None
        finally:
            self._seconds = time.thread_time() - started

    def _decode(self, reserve: Callable[[int], None]) -> pa.Array:
        return self.block.decode(
            self._dtype,
            keep_dictionary=True,
            keep_templates=self._keep_templates,
            reserve=reserve,
        )

    def _charge(self, size: int) -> None:
        self._budget.charge(STAGE, size)
        self._held += size

    def _try_charge(self, size: int) -> None:
        if not self._budget.try_charge(STAGE, size):
            raise _NoRoomError
        self._held += size


def may_decode_ahead(budget: MemoryBudget, size: int) -> bool:
    """Returns whether memory is free enough to decode a chunk of about `size` bytes before it is needed."""
    return budget.has_room(size, budget.limit_bytes // AHEAD_DIVISOR)
