"""Cuts merged rows into row groups, and row groups into fragments.

Row groups end where the heaviest column reaches its target by the inputs' statistics, or at a number of rows.
Fragments end only where the key changes, so that outputs are disjoint: at the target size, or earlier at cut
keys, where fragments of the level below begin. All sums are of whole numbers, because cuts must not depend on
how the rows were divided into batches.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from compactor.merge.order.key_merge import CopiedRowGroup, MergedBatch
from compactor.merge.order.keys_in_order import WaitingKeys
from compactor.resources.reservation import Reservation
from compactor.rows.flags import KEPT, Flags, joined, whole_until
from lsm_fragment.keys.comparator import ComparableKey
from lsm_fragment.native.arrays.integers import count_within
from lsm_fragment.native.gather import origins

SIZE_UNITS: Final = 256
"""Units per byte in which stored sizes of rows are counted."""


class OutputGroup(Struct, frozen=True):
    """The rows of one output row group: the input of each. The consumer takes their sort columns before it
    asks for the next one."""

    origins: npt.NDArray[np.uint16]
    starts_fragment: bool
    flags: Flags | None = None
    """The fate of each row; None if all are written."""

    @property
    def rows(self) -> int:
        return len(self.origins)


class CopiedOutputGroup(Struct, frozen=True):
    """An output row group that is copied from an input."""

    whole: CopiedRowGroup
    starts_fragment: bool

    @property
    def rows(self) -> int:
        return self.whole.rows


class CutRule(Struct, frozen=True):
    """The rule by which row groups and fragments end."""

    rows_per_group: int
    """The most rows of a row group."""
    group_bytes: int
    """Target for raw bytes of a row group's heaviest column."""
    fragment_units: int
    """Estimated stored bytes, in `SIZE_UNITS` per byte, after which a fragment ends at the next change of
    key."""
    units_per_row: npt.NDArray[np.int64]
    """Stored bytes of a row of each input, in `SIZE_UNITS` per byte. Shape (inputs,)."""
    cut_keys: Sequence[ComparableKey] = ()
    """Ascending keys: a large enough fragment ends before the first row at or after each."""


def cut_row_groups(
    batches: Iterator[MergedBatch | CopiedRowGroup],
    rule: CutRule,
    keys: WaitingKeys,
    memory: Reservation,
) -> Iterator[OutputGroup | CopiedOutputGroup]:
    """Yields row groups as large as the rule allows, except for a fragment's last ones.

    keys: of the rows of batches that are in no row group yet. memory: that of these batches.
    """
    return _Cutter(rule, keys, memory).run(batches)


_MANY_BATCHES: Final = 64
"""Join small batches once there are this many."""
_MIN_GROUP_DIVISOR: Final = 4
"""Join waiting rows with a whole row group that follows, if they are less than one part in this many of a row
group."""
_MIN_CUT_DIVISOR: Final = 4
"""Continue a fragment through a cut key while it is below one part in this many of its target."""


class _Cutter:
    def __init__(self, rule: CutRule, keys: WaitingKeys, memory: Reservation) -> None:
        self._rule = rule
        self._keys = keys
        self._memory = memory
        self._cut_keys = deque(rule.cut_keys)
        self._waiting: list[MergedBatch] = []
        self._waiting_rows = self._key_bytes = 0
        self._try_at_bytes = rule.group_bytes
        self._fragment_units = 0
        self._starts_fragment = True
        self._max_rows = rule.rows_per_group

    def run(
        self, batches: Iterator[MergedBatch | CopiedRowGroup]
    ) -> Iterator[OutputGroup | CopiedOutputGroup]:
        for batch in batches:
            if isinstance(batch, CopiedRowGroup):
                yield from self._take_copied(batch)
                continue
            self._wait([*self._waiting, batch])
            if (
                self._waiting_rows >= 2 * self._rule.rows_per_group
                or self._key_bytes >= self._try_at_bytes
            ):
                yield from self._emit(final=False)
                self._try_at_bytes = max(self._rule.group_bytes, 2 * self._key_bytes)
        yield from self._emit(final=True)

    def _take_copied(self, whole: CopiedRowGroup) -> Iterator[OutputGroup | CopiedOutputGroup]:
        yield from self._emit(final=False)
        if self._is_cut_within(whole):
            self._wait([*self._waiting, whole.as_batch()])
        elif self._is_little_waiting():
            # Together they make one or two row groups of a fair size; the next row group can be copied again.
            self._wait([*self._waiting, whole.as_batch()])
            yield from self._emit_evenly()
        else:
            yield from self._emit_evenly()
            if self._ends_before(whole):
                self._fragment_units, self._starts_fragment = 0, True
            yield CopiedOutputGroup(whole, self._starts_fragment)
            self._starts_fragment = False
            self._fragment_units += int(self._rule.units_per_row[whole.input]) * whole.rows

    def _is_cut_within(self, whole: CopiedRowGroup) -> bool:
        """Returns whether a cut key lies after the row group's first key; earlier ones do not matter."""
        after = bisect.bisect_right(self._cut_keys, whole.first_key)
        return after < len(self._cut_keys) and self._cut_keys[after] <= whole.last_key

    def _ends_before(self, whole: CopiedRowGroup) -> bool:
        """Returns whether the fragment must end before it, for its size or for a cut key that is reached."""
        is_large = self._fragment_units >= self._rule.fragment_units
        ends = is_large and whole.starts_key and self._fragment_units > 0
        while self._cut_keys and self._cut_keys[0] <= whole.first_key:
            ends |= self._fragment_units * _MIN_CUT_DIVISOR >= self._rule.fragment_units
            self._cut_keys.popleft()
        return ends

    def _is_little_waiting(self) -> bool:
        rows, rule = self._waiting_rows, self._rule
        weight = sum(int(batch.row_bytes.sum()) for batch in self._waiting)
        is_light = weight * _MIN_GROUP_DIVISOR < rule.group_bytes
        return 0 < rows * _MIN_GROUP_DIVISOR < rule.rows_per_group and is_light

    def _emit_evenly(self) -> Iterator[OutputGroup]:
        """Yields all waiting rows in row groups of equal size."""
        rows, rule = self._waiting_rows, self._rule
        weight = sum(int(batch.row_bytes.sum()) for batch in self._waiting)
        parts = max(1, -(-rows // rule.rows_per_group), -(-weight // rule.group_bytes))
        self._max_rows = -(-rows // parts)
        yield from self._emit(final=True)
        self._max_rows = rule.rows_per_group

    def _wait(self, batches: list[MergedBatch]) -> None:
        if len(batches) >= _MANY_BATCHES:
            joined = _join(batches)
            batches = [] if joined is None else [joined]
        self._waiting = batches
        self._waiting_rows = sum(batch.rows for batch in batches)
        self._key_bytes = sum(batch.key_bytes for batch in batches)
        self._memory.resize(sum(batch.nbytes for batch in batches))

    def _emit(self, *, final: bool) -> Iterator[OutputGroup]:
        """Yields row groups: all if `final`, otherwise those after which another full one is in sight.

        So the rows that are left before a copied row group can be divided evenly.
        """
        pending = _join(self._waiting)
        while pending is not None:
            by_size = self._rows_by_size(pending)
            if not final and not self._is_full_in_sight(pending, by_size):
                break
            rows = self._rows_until_cut(pending)
            if rows == 0:
                self._fragment_units, self._starts_fragment = 0, True
                continue
            group, pending = self._take(pending, min(rows, by_size))
            yield group
        self._wait([] if pending is None else [pending])

    def _rows_until_cut(self, pending: MergedBatch) -> int:
        """Returns the rows before the fragment must end; all rows in sight if it need not end."""
        cut = self._cut_row(pending)
        if self._fragment_units >= self._rule.fragment_units:
            changes = np.flatnonzero(pending.starts_key[: self._rule.rows_per_group])
            if len(changes):
                return min(int(changes[0]), pending.rows if cut is None else cut)
        return pending.rows if cut is None else cut

    def _rows_by_size(self, pending: MergedBatch, start: int = 0) -> int:
        """Returns the rows of a row group that begins at row `start`, by number and weight; at least 1."""
        stop = min(pending.rows, start + self._max_rows)
        rows = max(1, count_within(pending.row_bytes[start:stop], self._rule.group_bytes))
        # The actual weight of keys is known, because they are loaded.
        rows = self._keys.rows_within(pending.inputs[: start + rows], start, self._rule.group_bytes)
        return whole_until(None if pending.flags is None else pending.flags[start:], rows)

    def _cut_row(self, pending: MergedBatch) -> int | None:
        """Returns the row before which the fragment must end for a cut key; None if the next row group has no
        such row."""
        sight = min(pending.rows, self._rule.rows_per_group)
        while self._cut_keys:
            row = bisect.bisect_left(
                range(sight),
                self._cut_keys[0],
                key=lambda row: self._keys.key(pending.inputs, row),
            )
            if row == sight:
                return None
            so_far = self._fragment_units + self._units(pending, row)
            if so_far * _MIN_CUT_DIVISOR >= self._rule.fragment_units:
                return row
            self._cut_keys.popleft()
        return None

    def _take(self, pending: MergedBatch, rows: int) -> tuple[OutputGroup, MergedBatch | None]:
        group = OutputGroup(
            pending.inputs[:rows],
            self._starts_fragment,
            None if pending.flags is None else pending.flags[:rows],
        )
        self._starts_fragment = False
        self._fragment_units += self._units(pending, rows)
        return group, _from(pending, rows)

    def _is_full_in_sight(self, pending: MergedBatch, start: int) -> bool:
        rows = pending.rows - start
        return rows > 0 and (
            rows >= self._rule.rows_per_group or self._rows_by_size(pending, start) < rows
        )

    def _units(self, pending: MergedBatch, rows: int) -> int:
        inputs = pending.inputs[:rows]
        if pending.flags is not None:
            inputs = inputs[(pending.flags[:rows] & KEPT).astype(np.bool_)]
        counts = np.empty(len(self._rule.units_per_row), dtype=np.int64)
        origins.count(inputs, counts)
        return int(counts @ self._rule.units_per_row)


def _from(batch: MergedBatch, row: int) -> MergedBatch | None:
    """Returns the rest of a batch from a row on, or None."""
    rest = MergedBatch(
        inputs=batch.inputs[row:],
        starts_key=batch.starts_key[row:],
        row_bytes=batch.row_bytes[row:],
        key_bytes=batch.key_bytes * (batch.rows - row) // batch.rows,
        flags=None if batch.flags is None else batch.flags[row:],
    )
    return rest if rest.rows else None


def _join(batches: Sequence[MergedBatch]) -> MergedBatch | None:
    if len(batches) <= 1:
        return batches[0] if batches else None
    return MergedBatch(
        inputs=np.concatenate([batch.inputs for batch in batches]),
        starts_key=np.concatenate([batch.starts_key for batch in batches]),
        row_bytes=np.concatenate([batch.row_bytes for batch in batches]),
        key_bytes=sum(batch.key_bytes for batch in batches),
        flags=joined([batch.flags for batch in batches], [batch.rows for batch in batches]),
    )
