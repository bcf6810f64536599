"""Cutting merged rows into row groups, and row groups into fragments.

Row groups end where the heaviest column has its target by the inputs' statistics, or at a number of rows.
Fragments end only where the key changes, so that outputs are disjoint: at the target size, and before
that at cut keys, where fragments of the level below begin. All sums are of whole numbers: cuts must not
depend on how the rows came in windows.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.merge.key_merge import CopiedRowGroup, MergeWindow
from compactor.merge.loaded_rows import ComparableKey
from compactor.rows.flags import KEPT, Flags, joined, whole_until
from format.arrays import concat_storage
from format.sizes import rows_within

SIZE_UNITS: Final = 256
"""Fractions of a byte that stored sizes of rows are counted in."""


@dataclass(frozen=True, slots=True)
class OutputGroup:
    """One output row group's keys and the input of each of its rows."""

    keys: list[pa.Array]
    origins: npt.NDArray[np.uint16]
    starts_fragment: bool
    flags: Flags | None = None
    """What becomes of each row; None: all are written as they are."""

    @property
    def rows(self) -> int:
        return len(self.origins)


@dataclass(frozen=True, slots=True)
class CopiedOutputGroup:
    """An output row group that is an input's, as it is."""

    whole: CopiedRowGroup
    starts_fragment: bool

    @property
    def rows(self) -> int:
        return self.whole.rows


@dataclass(frozen=True, slots=True)
class CutRule:
    """When to end row groups and fragments."""

    rows_per_group: int
    """At most."""
    group_bytes: int
    """Raw bytes of a row group's heaviest column."""
    fragment_units: int
    """Estimated stored bytes, times `SIZE_UNITS`, after which a fragment ends at the next change of key."""
    units_per_row: npt.NDArray[np.int64]
    """Stored bytes of a row of each input, times `SIZE_UNITS`; shape (inputs,)."""
    cut_keys: Sequence[ComparableKey] = ()
    """Ascending: a fragment of some size ends before the first row at or after each."""
    key_at: Callable[[MergeWindow, int], ComparableKey] | None = None
    """Comparable key of a row; needed with `cut_keys`."""


def cut_row_groups(
    windows: Iterator[MergeWindow | CopiedRowGroup],
    rule: CutRule,
    on_waiting: Callable[[int], None] = lambda _size: None,
) -> Iterator[OutputGroup | CopiedOutputGroup]:
    """Row groups as large as the rule allows, but for a fragment's last ones.

    on_waiting: told the bytes of the windows that are kept, whenever that changes.
    """
    return _Cutter(rule, on_waiting).run(windows)


_MANY_WINDOWS: Final = 64
"""Small windows are put together when there are so many."""
_MIN_GROUP_SHARE: Final = 4
"""Rows of less than this part of a row group are put together with a whole one that follows."""
_MIN_CUT_SHARE: Final = 4
"""A fragment smaller than this part of its target goes on through a cut key: cuts make no small ones."""


class _Cutter:
    def __init__(self, rule: CutRule, on_waiting: Callable[[int], None]) -> None:
        self._rule = rule
        self._on_waiting = on_waiting
        self._cut_keys = deque(rule.cut_keys)
        self._waiting: list[MergeWindow] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._try_at_bytes = rule.group_bytes
        self._fragment_units = 0
        self._starts_fragment = True
        self._most_rows = rule.rows_per_group

    def run(
        self, windows: Iterator[MergeWindow | CopiedRowGroup]
    ) -> Iterator[OutputGroup | CopiedOutputGroup]:
        for window in windows:
            if isinstance(window, CopiedRowGroup):
                yield from self._take_copied(window)
                continue
            self._wait([*self._waiting, window])
            if (
                self._waiting_rows >= 2 * self._rule.rows_per_group
                or self._waiting_bytes >= self._try_at_bytes
            ):
                yield from self._emit(final=False)
                self._try_at_bytes = max(self._rule.group_bytes, 2 * self._waiting_bytes)
        yield from self._emit(final=True)

    def _take_copied(self, whole: CopiedRowGroup) -> Iterator[OutputGroup | CopiedOutputGroup]:
        yield from self._emit(final=False)
        if self._is_cut_within(whole):
            self._wait([*self._waiting, whole.as_window()])
        elif self._is_little_waiting():
            # Together they make one or two row groups of a fair size, and what comes next is whole again.
            self._wait([*self._waiting, whole.as_window()])
            yield from self._emit_evenly()
        else:
            yield from self._emit_evenly()
            if self._ends_before(whole):
                self._fragment_units, self._starts_fragment = 0, True
            yield CopiedOutputGroup(whole, self._starts_fragment)
            self._starts_fragment = False
            self._fragment_units += int(self._rule.units_per_row[whole.input]) * whole.rows

    def _is_cut_within(self, whole: CopiedRowGroup) -> bool:
        """Whether a cut key lies after its first key; earlier ones are none of its business."""
        after = bisect.bisect_right(self._cut_keys, whole.first_key)
        return after < len(self._cut_keys) and self._cut_keys[after] <= whole.last_key

    def _ends_before(self, whole: CopiedRowGroup) -> bool:
        """Whether the fragment has to end before it, for its size or for a cut key that is reached."""
        is_large = self._fragment_units >= self._rule.fragment_units
        ends = is_large and whole.starts_key and self._fragment_units > 0
        while self._cut_keys and self._cut_keys[0] <= whole.first_key:
            ends |= self._fragment_units * _MIN_CUT_SHARE >= self._rule.fragment_units
            self._cut_keys.popleft()
        return ends

    def _is_little_waiting(self) -> bool:
        rows, rule = self._waiting_rows, self._rule
        weight = sum(int(window.row_bytes.sum()) for window in self._waiting)
        is_light = weight * _MIN_GROUP_SHARE < rule.group_bytes
        return 0 < rows * _MIN_GROUP_SHARE < rule.rows_per_group and is_light

    def _emit_evenly(self) -> Iterator[OutputGroup]:
        """All that waits, in row groups of like size."""
        rows, rule = self._waiting_rows, self._rule
        weight = sum(int(window.row_bytes.sum()) for window in self._waiting)
        parts = max(1, -(-rows // rule.rows_per_group), -(-weight // rule.group_bytes))
        self._most_rows = -(-rows // parts)
        yield from self._emit(final=True)
        self._most_rows = rule.rows_per_group

    def _wait(self, windows: list[MergeWindow]) -> None:
        if len(windows) >= _MANY_WINDOWS:
            joined = _join(windows)
            windows = [] if joined is None else [joined]
        self._waiting = windows
        self._waiting_rows = sum(window.rows for window in windows)
        self._waiting_bytes = sum(window.nbytes for window in windows)
        self._on_waiting(self._waiting_bytes)

    def _emit(self, *, final: bool) -> Iterator[OutputGroup]:
        """All row groups if no more rows come; else those that another full one is in sight after, so that
        what is left before a whole row group can be divided evenly."""
        pending = _join(self._waiting)
        while pending is not None:
            by_size = self._rows_by_size(pending)
            if not final and not self._is_full_in_sight(_from(pending, by_size)):
                break
            rows = self._rows_until_cut(pending)
            if rows == 0:
                self._fragment_units, self._starts_fragment = 0, True
                continue
            group, pending = self._take(pending, min(rows, by_size))
            yield group
        self._wait([] if pending is None else [pending])

    def _rows_until_cut(self, pending: MergeWindow) -> int:
        """Rows before the fragment has to end; all that are in sight if it has not to."""
        cut = self._cut_row(pending)
        if self._fragment_units >= self._rule.fragment_units:
            changes = np.flatnonzero(pending.starts_key[: self._rule.rows_per_group])
            if len(changes):
                return min(int(changes[0]), pending.rows if cut is None else cut)
        return pending.rows if cut is None else cut

    def _rows_by_size(self, pending: MergeWindow) -> int:
        """Rows of the next row group by number and weight; at least 1."""
        rows = min(pending.rows, self._most_rows)
        running = np.cumsum(pending.row_bytes[:rows])
        if running[-1] > self._rule.group_bytes:
            rows = max(1, int(np.searchsorted(running, self._rule.group_bytes, side="right")))
        # Keys are at hand: how heavy they really are is known.
        rows = rows_within([key.slice(0, rows) for key in pending.keys], self._rule.group_bytes)
        return whole_until(pending.flags, rows)

    def _cut_row(self, pending: MergeWindow) -> int | None:
        """The row before which the fragment has to end for a cut key; None if there is none in the next row
        group."""
        key_at = self._rule.key_at
        sight = min(pending.rows, self._rule.rows_per_group)
        while self._cut_keys and key_at is not None:
            row = bisect.bisect_left(
                range(sight), self._cut_keys[0], key=lambda row: key_at(pending, row)
            )
            if row == sight:
                return None
            so_far = self._fragment_units + self._units(pending, row)
            if so_far * _MIN_CUT_SHARE >= self._rule.fragment_units:
                return row
            self._cut_keys.popleft()
        return None

    def _take(self, pending: MergeWindow, rows: int) -> tuple[OutputGroup, MergeWindow | None]:
        group = OutputGroup(
            [key.slice(0, rows) for key in pending.keys],
            pending.inputs[:rows],
            self._starts_fragment,
            None if pending.flags is None else pending.flags[:rows],
        )
        self._starts_fragment = False
        self._fragment_units += self._units(pending, rows)
        return group, _from(pending, rows)

    def _is_full_in_sight(self, pending: MergeWindow | None) -> bool:
        return pending is not None and (
            pending.rows >= self._rule.rows_per_group or self._rows_by_size(pending) < pending.rows
        )

    def _units(self, pending: MergeWindow, rows: int) -> int:
        inputs = pending.inputs[:rows]
        if pending.flags is not None:
            inputs = inputs[(pending.flags[:rows] & KEPT).astype(np.bool_)]
        return int(self._rule.units_per_row[inputs].sum())


def _from(window: MergeWindow, row: int) -> MergeWindow | None:
    """What is left from a row on."""
    rest = MergeWindow(
        [key.slice(row) for key in window.keys],
        window.inputs[row:],
        window.starts_key[row:],
        window.row_bytes[row:],
        None if window.flags is None else window.flags[row:],
    )
    return rest if rest.rows else None


def _join(windows: Sequence[MergeWindow]) -> MergeWindow | None:
    if len(windows) <= 1:
        return windows[0] if windows else None
    return MergeWindow(
        [concat_storage(list(parts)) for parts in zip(*(w.keys for w in windows), strict=True)],
        np.concatenate([window.inputs for window in windows]),
        np.concatenate([window.starts_key for window in windows]),
        np.concatenate([window.row_bytes for window in windows]),
        joined([window.flags for window in windows], [window.rows for window in windows]),
    )
