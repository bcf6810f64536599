"""Decides from the keys alone which merged rows stay, as flags on the row order.

Gathering a column ignores the flags; `fold` applies them afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from pyarrow import types as pt

from compactor.rows.key_rows import KeyRows
from compactor.rows.policy import RowFunction, RowKind, RowPolicy, Ttl
from lsm_fragment import compute as pc
from lsm_fragment.arrays.storage import plain
from lsm_fragment.arrays.times import DAY_SECONDS, UNITS_PER_SECOND
from lsm_fragment.arrays.types import uncoded_type
from lsm_fragment.keys.sort_schema import SortSchema

Flags = npt.NDArray[np.uint8]
SortColumns = Sequence[pa.Array] | Mapping[int, pa.Array]
"""Sort columns by position."""
KEPT: Final = 1
"""The row is written, alone or with other rows folded into it."""
COUNTS: Final = 2
"""The row's values are folded into the next kept row, or it is that row."""

SUPERSEDED: Final = "superseded"
"""Rows replaced or absorbed by another row of their key, or removed by a tombstone."""
TOMBSTONES: Final = "tombstones"
EXPIRED: Final = "expired"
DELETED: Final = "deleted"
"""Rows deleted by a condition."""
REASONS: Final = (DELETED, EXPIRED, SUPERSEDED, TOMBSTONES)


class Decision(Struct, frozen=True):
    """The decision on consecutive rows, which cover whole keys."""

    flags: Flags
    """Shape (rows,)."""
    dropped: dict[str, int]
    """Number of dropped rows by reason."""


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
        """is_bottom: whether the merge has all older rows of its keys. shows: whether the result is for
        readers, which see no tombstones. now_unix_ms: current time for expiry; None to expire no rows.
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
                self._cutoff = expires_before(ttl, self._time_type, now_unix_ms)

    @property
    def merges(self) -> bool:
        return self.policy.merges

    @property
    def decides_by(self) -> Sequence[int]:
        """Positions of the sort columns that `decide` reads."""
        places = (self._marker, self._time if self._cutoff is not None else None)
        return sorted({place for place in places if place is not None})

    @property
    def rows_per_key(self) -> int:
        """Maximum rows of one key in a fragment."""
        may_wait = self._marker is not None and self.policy.kind is not RowKind.LAST
        return 2 if may_wait else 1

    def folds(self, column: str) -> bool:
        """Returns whether values of a column may come from rows other than the kept one."""
        return self.policy.folds and all(part.column != column for part in self.key)

    def function(self, column: str) -> RowFunction | None:
        """Returns the function that folds a column; None if each row keeps its own value."""
        return self.policy.function(column) if self.folds(column) else None

    def row_statistics(self, keys: Sequence[pa.Array]) -> RowStatistics:
        """Returns the statistics of rows to write. keys: their sort columns."""
        oldest = None
        tombstone = self._tombstones(keys, len(keys[0]))
        if self._time is not None:
            times = _integers(keys[self._time])
            if tombstone.any():  # which never expire: they may stay for ever
                times = pc.filter(times, pa.array(~tombstone))
            minimum = pc.min(times).as_py()
            oldest = None if minimum is None else unix_ms(minimum, self._time_type)
        return RowStatistics(int(tombstone.sum()), oldest)

    def leaves(self, keys: Sequence[pa.Array]) -> bool:
        """Returns whether all rows of a fragment stay unchanged if no other fragment has their keys."""
        if self._drops_tombstones and self._marker is not None and _true(keys[self._marker]).any():
            return False
        return not self._expired(keys, len(keys[0])).any()

    def decide(self, keys: SortColumns, starts: npt.NDArray[np.bool_]) -> Decision | None:
        """Decides on rows in merged order; returns None if all stay unchanged.

        keys: the sort columns; those of `decides_by` suffice. starts: whether each row is the first of its
        key, shape (rows,); the first row always is.
        """
        first = starts.copy()
        first[0] = True
        tombstone = self._tombstones(keys, len(starts))
        expired = self._expired(keys, len(starts))
        is_plain = not self.merges or first.all()
        if is_plain and not expired.any() and not (self._drops_tombstones and tombstone.any()):
            return None
        if not self.merges:
            return _decision(~expired, ~expired, {EXPIRED: int(expired.sum())})
        return self._merged(KeyRows.of(first, tombstone), expired)

    def _merged(self, rows: KeyRows, expired: npt.NDArray[np.bool_]) -> Decision | None:
        """Keeps one live row per key unless it is expired, and tombstones while they may hide other rows."""
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

    def _tombstones(self, keys: SortColumns, rows: int) -> npt.NDArray[np.bool_]:
        if self._marker is None:
            return np.zeros(rows, dtype=np.bool_)
        return _true(keys[self._marker])

    def _expired(self, keys: SortColumns, rows: int) -> npt.NDArray[np.bool_]:
        # An expired row may hide an older one, so it stays until both are in one merge.
        if self._cutoff is None or self._time is None or not (self._is_bottom or not self.merges):
            return np.zeros(rows, dtype=np.bool_)
        return _as_flags(pc.less(_integers(keys[self._time]), self._cutoff))


class RowStatistics(Struct, frozen=True):
    """Statistics of a fragment's rows, for later compactions."""

    tombstones: int = 0
    oldest_unix_ms: int | None = None
    """Minimum of the column that the time to live measures, over rows that may expire: tombstones never do.
    None if there is none."""

    def __add__(self, other: RowStatistics) -> RowStatistics:
        times = [t for t in (self.oldest_unix_ms, other.oldest_unix_ms) if t is not None]
        return RowStatistics(self.tombstones + other.tombstones, min(times, default=None))


NONE_SEEN: Final = RowStatistics()


def is_needed(policy: RowPolicy, ttl: Ttl | None) -> bool:
    """Returns whether merges have to decide on rows at all."""
    return policy.merges or ttl is not None


def expires_before(ttl: Ttl, dtype: pa.DataType, now_unix_ms: int) -> int:
    """Returns the stored time before which rows have expired. dtype: type of the column that `ttl` measures.

    A date expires once all its day is past the time to live.
    """
    return stored_time(now_unix_ms - ttl.seconds * 1000, dtype)


def stored_time(unix_ms: int, dtype: pa.DataType) -> int:
    """Converts a time to the stored integer of a column, rounded down, and at least the type's minimum."""
    dtype = uncoded_type(dtype)
    if pt.is_date32(dtype):
        return max(-(2**31), unix_ms // (1000 * DAY_SECONDS))
    time = unix_ms * (UNITS_PER_SECOND[dtype.unit] if pt.is_timestamp(dtype) else 1000) // 1000
    return max(-(2**63), time)


def unix_ms(time: int, dtype: pa.DataType) -> int:
    """Converts a stored time to Unix milliseconds, rounded down."""
    dtype = uncoded_type(dtype)
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
    """Returns the position after `start` nearest to `rows` at which rows may be split.

    Prefers a position before `rows`; takes one after it if there is none.
    """
    if flags is None or rows >= len(flags):
        return rows
    # A row stays together with the row that it is folded into.
    divides = flags & (KEPT | COUNTS) != COUNTS
    before = np.flatnonzero(divides[start:rows])
    if len(before):
        return start + int(before[-1]) + 1
    after = np.flatnonzero(divides[rows:])
    return rows + int(after[0]) + 1 if len(after) else len(flags)


def is_divisible(flags: Flags | None, rows: int) -> bool:
    """Returns whether `rows` rows can be split at all."""
    return rows > 1 and whole_until(flags, 1) < rows


def joined(parts: Sequence[Flags | None], rows: Sequence[int]) -> Flags | None:
    """Concatenates the flags of consecutive rows; None if all rows stay."""
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
