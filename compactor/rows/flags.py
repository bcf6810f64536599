"""Which rows of a stretch of merged rows stay: decided from their keys alone, as flags on the row order.

Column gathering does not know of it; what is done to a column by the flags is in `fold`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from compactor.rows.key_rows import KeyRows
from compactor.rows.policy import RowKind, RowPolicy, Ttl
from format.schema import SortSchema
from format.storage import plain

Flags = npt.NDArray[np.uint8]
KEPT: Final = 1
"""The row is written: as it is, or with what was folded into it."""
COUNTS: Final = 2
"""The row's values are folded into the next row kept, or it is that row."""
UNITS_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DAY_SECONDS: Final = 86_400

SUPERSEDED: Final = "superseded"
"""By another row of their key, or folded into it; or taken away by a tombstone."""
TOMBSTONES: Final = "tombstones"
EXPIRED: Final = "expired"
DELETED: Final = "deleted"
"""By a condition."""
REASONS: Final = (DELETED, EXPIRED, SUPERSEDED, TOMBSTONES)


@dataclass(frozen=True, slots=True)
class Decision:
    """Of a stretch of rows that are whole keys."""

    flags: Flags
    """Shape (rows,)."""
    dropped: dict[str, int]
    """Rows that are not written, by reason."""


class RowRule:
    """A table's row policy and time to live, as one merge applies them."""

    def __init__(
        self,
        policy: RowPolicy,
        ttl: Ttl | None,
        schema: pa.Schema,
        sort: SortSchema,
        *,
        is_bottom: bool,
        shows: bool = False,
        now_unix_ms: int | None = None,
    ) -> None:
        """is_bottom: whether no older row of any key is left out of the merge. shows: whether the result is
        for readers, who see no tombstones.

        now_unix_ms: by which rows are expired; None: none is.
        """
        self.policy = policy
        self.key = policy.key_columns(sort)
        self._is_bottom = is_bottom
        self._drops_tombstones = shows or (is_bottom and policy.may_drop_tombstones)
        self._names = names = [column.column for column in sort]
        marker = policy.delete_marker
        self._marker = None if marker is None else names.index(marker)
        self._time: int | None = None
        self._cutoff: int | None = None
        if ttl is not None:
            self._time = names.index(ttl.column)
            self._time_type = schema.field(ttl.column).type
            if now_unix_ms is not None:
                self._cutoff = least_time(now_unix_ms - ttl.seconds * 1000, self._time_type)

    @property
    def merges(self) -> bool:
        return self.policy.merges

    @property
    def rows_per_key(self) -> int:
        """Of one fragment, at most."""
        may_wait = self._marker is not None and self.policy.kind is not RowKind.LAST
        return 2 if may_wait else 1

    def folds(self, column: str) -> bool:
        """Whether a column's values may come from other rows than the one kept."""
        return self.policy.folds and all(part.column != column for part in self.key)

    def row_statistics(self, keys: Sequence[pa.Array]) -> RowStatistics:
        """Of rows to be written, by their sort columns."""
        oldest = None
        if self._time is not None:
            least = pc.min(_integers(keys[self._time])).as_py()
            oldest = None if least is None else unix_ms(least, self._time_type)
        marked = 0 if self._marker is None else int(_true(keys[self._marker]).sum())
        return RowStatistics(marked, oldest)

    def leaves(self, keys: Sequence[pa.Array]) -> bool:
        """Whether rows of one fragment, that no other has rows of the keys of, all stay as they are."""
        if self._drops_tombstones and self._marker is not None and _true(keys[self._marker]).any():
            return False
        return not self._expired(keys).any()

    def decide(self, keys: Sequence[pa.Array], starts: npt.NDArray[np.bool_]) -> Decision | None:
        """Returns what becomes of rows in merged order; None: all stay as they are.

        keys: the sort columns. starts: whether a row is the first of its key; the first row counts as one.
        """
        first = starts.copy()
        first[0] = True
        tombstone = self._tombstones(keys)
        expired = self._expired(keys)
        is_plain = not self.merges or first.all()
        if is_plain and not expired.any() and not (self._drops_tombstones and tombstone.any()):
            return None
        if not self.merges:
            return _decision(~expired, ~expired, {EXPIRED: int(expired.sum())})
        return self._merged(KeyRows.of(first, tombstone), expired)

    def _merged(self, rows: KeyRows, expired: npt.NDArray[np.bool_]) -> Decision | None:
        """One live row of each key stays unless it is expired; tombstones stay while they may hide others."""
        kind = self.policy.kind
        kept = rows.oldest_live if kind is RowKind.FIRST else rows.newest_live
        gone = kept & expired
        folded = rows.live & ~rows.of_keys_with(gone) if gone.any() else rows.live
        kept = kept & ~gone
        dropped = {EXPIRED: int(gone.sum())}
        tombstones = rows.barrier & rows.last if kind is RowKind.LAST else rows.barrier
        if self._drops_tombstones:
            dropped[TOMBSTONES] = int(tombstones.sum())
        else:
            kept = kept | tombstones
        dropped[SUPERSEDED] = len(kept) - int(kept.sum()) - sum(dropped.values())
        return _decision(kept, folded if self.policy.folds else kept, dropped)

    def _tombstones(self, keys: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        if self._marker is None:
            return np.zeros(len(keys[0]), dtype=np.bool_)
        return _true(keys[self._marker])

    def _expired(self, keys: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        # An expired row that hides an older one has to wait for that.
        if self._cutoff is None or self._time is None or not (self._is_bottom or not self.merges):
            return np.zeros(len(keys[0]), dtype=np.bool_)
        return _as_flags(pc.less(_integers(keys[self._time]), self._cutoff))


@dataclass(frozen=True, slots=True)
class RowStatistics:
    """What later compactions want to know of a fragment's rows."""

    tombstones: int = 0
    oldest_unix_ms: int | None = None
    """Least time of the column that a time to live goes by; None: no row has one."""

    def __add__(self, other: RowStatistics) -> RowStatistics:
        times = [t for t in (self.oldest_unix_ms, other.oldest_unix_ms) if t is not None]
        return RowStatistics(self.tombstones + other.tombstones, min(times, default=None))


NONE_SEEN: Final = RowStatistics()


def is_needed(policy: RowPolicy, ttl: Ttl | None) -> bool:
    """Whether a merge has anything to decide."""
    return policy.merges or ttl is not None


def least_time(unix_ms: int, dtype: pa.DataType) -> int:
    """A time as the stored integer of a column of that type, rounded down; the least where it has none."""
    dtype = dtype.value_type if pt.is_dictionary(dtype) else dtype
    if pt.is_date32(dtype):
        return max(-(2**31), unix_ms // (1000 * DAY_SECONDS))
    time = unix_ms * (UNITS_PER_SECOND[dtype.unit] if pt.is_timestamp(dtype) else 1000) // 1000
    return max(-(2**63), time)


def unix_ms(time: int, dtype: pa.DataType) -> int:
    """The stored integer of a time as milliseconds, rounded down."""
    dtype = dtype.value_type if pt.is_dictionary(dtype) else dtype
    if pt.is_date32(dtype):
        return time * 1000 * DAY_SECONDS
    return time * 1000 // (UNITS_PER_SECOND[dtype.unit] if pt.is_timestamp(dtype) else 1000)


def _decision(
    kept: npt.NDArray[np.bool_],
    counts: npt.NDArray[np.bool_],
    dropped: dict[str, int],
) -> Decision | None:
    if kept.all():
        return None
    flags = kept * np.uint8(KEPT) | counts * np.uint8(COUNTS)
    return Decision(flags, {reason: count for reason, count in dropped.items() if count})


def whole_until(flags: Flags | None, rows: int, start: int = 0) -> int:
    """The row next to `rows`, after `start`, where rows may be divided: before it if there is one, else
    behind."""
    if flags is None or rows >= len(flags):
        return rows
    # What counts is not divided from the row that it goes into.
    divides = flags & (KEPT | COUNTS) != COUNTS
    before = np.flatnonzero(divides[start:rows])
    if len(before):
        return start + int(before[-1]) + 1
    after = np.flatnonzero(divides[rows:])
    return rows + int(after[0]) + 1 if len(after) else len(flags)


def is_divisible(flags: Flags | None, rows: int) -> bool:
    """Whether so many rows can be divided at all."""
    return rows > 1 and whole_until(flags, 1) < rows


def joined(parts: Sequence[Flags | None], rows: Sequence[int]) -> Flags | None:
    """Flags of stretches of rows, end to end."""
    if all(part is None for part in parts):
        return None
    return np.concatenate(
        [
            np.full(count, KEPT | COUNTS, dtype=np.uint8) if part is None else part
            for part, count in zip(parts, rows, strict=True)
        ]
    )


def _true(marker: pa.Array) -> npt.NDArray[np.bool_]:
    return _as_flags(plain(marker))


def _integers(array: pa.Array) -> pa.Array:
    array = plain(array)
    return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())


def _as_flags(array: pa.Array) -> npt.NDArray[np.bool_]:
    flags: npt.NDArray[np.bool_] = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
    return flags
