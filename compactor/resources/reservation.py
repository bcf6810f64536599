"""The handle of memory: data that grows with the input carries a reservation of the bytes that it takes.

The model is DataFusion's `MemoryReservation`. Code that makes data reserves memory for it, and hands the
reservation over together with the data. A dropped reservation frees its bytes at once, because CPython counts
references; `free`, or a `with` statement, is for places that cannot wait until the last reference is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from compactor.resources.budget import MemoryBudget


class _Freed:
    """Is freed at the end of a `with` statement, or when it is dropped."""

    __slots__ = ()

    def free(self) -> object:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.free()

    def __del__(self) -> None:
        self.free()


class Reservation(_Freed):
    """Bytes that one stage has charged to a budget, until they are freed.

    Only one thread at a time may use a reservation; data for another thread gets a part of it (`split`).
    Only the thread that consumes the data may `grow` or `transfer` one.
    """

    __slots__ = ("_budget", "_pins", "_size", "stage")

    def __init__(self, budget: MemoryBudget, stage: str, size: int = 0) -> None:
        """Reserves `size` bytes; raises what `grow` raises."""
        self.stage = stage
        self._budget = budget
        self._size = 0
        self._pins = 0
        """Number of pins; only `Pins` changes it."""
        if size:
            self.grow(size)

    @property
    def size(self) -> int:
        return self._size

    def grow(self, size: int) -> None:
        """Reserves `size` more bytes; waits and spills as needed.

        Raises `MemoryLimitError` if that is not enough.
        """
        assert size >= 0, "to give bytes back, shrink"
        self._budget.charge(self.stage, size)
        self._size += size

    def try_grow(self, size: int, *, is_urgent: bool = False, reserve_bytes: int = 0) -> bool:
        """Reserves more bytes if they fit below the soft limit (if urgent, the limit), and leave
        `reserve_bytes` below the limit. Any thread may.

        Returns whether they did.
        """
        if not self._budget.try_charge(
            self.stage, size, is_urgent=is_urgent, reserve_bytes=reserve_bytes
        ):
            return False
        self._size += size
        return True

    def grow_beyond(self, size: int) -> None:
        """Reserves bytes that are in memory already, even beyond the limit. Any thread may."""
        self._budget.force(self.stage, size)
        self._size += size

    def shrink(self, size: int) -> None:
        """Frees some of the bytes."""
        assert size <= self._size, f"a reservation of {self.stage} gives back more than it holds"
        self._size -= size
        self._budget.discharge(self.stage, size)

    def resize(self, size: int) -> None:
        """Grows or shrinks to `size` bytes."""
        if size > self._size:
            self.grow(size - self._size)
        else:
            self.shrink(self._size - size)

    def split(self, size: int) -> Reservation:
        """Returns a reservation of its own for some of the bytes."""
        assert size <= self._size, f"a reservation of {self.stage} is split beyond what it holds"
        part = Reservation(self._budget, self.stage)
        self._size -= size
        part._size = size
        return part

    def take(self) -> Reservation:
        """Returns a reservation of all bytes, and holds none any more."""
        return self.split(self._size)

    def absorb(self, other: Reservation) -> None:
        """Takes over all bytes of another reservation of the same stage."""
        assert other.stage == self.stage
        self._size, other._size = self._size + other._size, 0

    def transfer(self, stage: str, max_bytes: int) -> None:
        """Moves the bytes to another stage, which other threads drain; waits until it holds at most
        `max_bytes` with them, or nothing else."""
        self._budget.move_when_below(self.stage, stage, self._size, max_bytes)
        self.stage = stage

    def free(self) -> int:
        """Frees all bytes. Returns their number. Idempotent."""
        freed, self._size = self._size, 0
        if freed:
            self._budget.discharge(self.stage, freed)
        return freed

    @property
    def is_pinned(self) -> bool:
        """Whether its data is in use elsewhere, so that to spill it would free nothing."""
        return self._pins > 0


class Pins(_Freed):
    """Keeps reservations alive for a user of their data, whose owner may drop them meanwhile.

    Memory that the owner has dropped is freed with the last pin. Use it from one thread.
    """

    __slots__ = ("_pinned",)

    def __init__(self) -> None:
        self._pinned: list[Reservation] = []

    def add(self, reservation: Reservation) -> None:
        """Pins a reservation."""
        reservation._pins += 1
        self._pinned.append(reservation)

    def extend(self, reservations: Sequence[Reservation]) -> None:
        """Pins reservations."""
        for reservation in reservations:
            reservation._pins += 1
        self._pinned += reservations

    def free(self) -> None:
        """Unpins all. Idempotent."""
        for reservation in self._pinned:
            reservation._pins -= 1
        self._pinned = []
