"""Cutting merged rows into row groups, and row groups into fragments.

Fragments end only where the key changes, so that outputs are disjoint: at the target size, and before
that at cut keys, where fragments of the level below begin.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.merge.key_merge import ComparableKey, MergeWindow
from format.arrays import concat_storage


@dataclass(frozen=True, slots=True)
class OutputGroup:
    """One output row group's keys and the input of each of its rows."""

    keys: list[pa.Array]
    origins: npt.NDArray[np.uint16]
    starts_fragment: bool


@dataclass(frozen=True, slots=True)
class CutRule:
    """When to end row groups and fragments."""

    rows_per_group: int
    fragment_bytes: float
    """Estimated stored bytes after which a fragment ends at the next change of key."""
    bytes_per_row: npt.NDArray[np.float64]
    """Stored bytes a row of each input; shape (inputs,)."""
    cut_keys: Sequence[ComparableKey] = ()
    """Ascending: a fragment of some size ends before the first row at or after each."""
    key_at: Callable[[MergeWindow, int], ComparableKey] | None = None
    """Comparable key of a row; needed with `cut_keys`."""


def cut_row_groups(windows: Iterator[MergeWindow], rule: CutRule) -> Iterator[OutputGroup]:
    """Row groups of exactly `rows_per_group` rows, but for a fragment's last ones."""
    return _Cutter(rule).run(windows)


_MIN_CUT_SHARE: Final = 4
"""A fragment smaller than this part of its target goes on through a cut key: cuts make no small ones."""


class _Cutter:
    def __init__(self, rule: CutRule) -> None:
        self._rule = rule
        self._cut_keys = deque(rule.cut_keys)
        self._pending: MergeWindow | None = None
        self._fragment_bytes = 0.0
        self._starts_fragment = True

    def run(self, windows: Iterator[MergeWindow]) -> Iterator[OutputGroup]:
        for window in windows:
            self._pending = window if self._pending is None else _join(self._pending, window)
            yield from self._emit(final=False)
        yield from self._emit(final=True)

    def _emit(self, *, final: bool) -> Iterator[OutputGroup]:
        while self._pending is not None and self._pending.rows:
            limit = self._pending.rows
            cut = self._cut_row(self._pending)
            if cut == 0:
                self._fragment_bytes, self._starts_fragment = 0.0, True
                continue
            if self._fragment_bytes >= self._rule.fragment_bytes:
                changes = np.flatnonzero(self._pending.starts_key)
                if len(changes) and changes[0] == 0:
                    self._fragment_bytes, self._starts_fragment = 0.0, True
                    continue
                if len(changes):
                    limit = int(changes[0])
                    yield self._take(min(limit, self._rule.rows_per_group))
                    continue
            if cut is not None:
                yield self._take(min(cut, self._rule.rows_per_group))
                continue
            if limit < self._rule.rows_per_group and not final:
                return
            yield self._take(min(limit, self._rule.rows_per_group))

    def _cut_row(self, pending: MergeWindow) -> int | None:
        """The row before which the fragment has to end for a cut key; None if there is none in sight."""
        key_at = self._rule.key_at
        while self._cut_keys and key_at is not None:
            row = bisect.bisect_left(
                range(pending.rows), self._cut_keys[0], key=lambda row: key_at(pending, row)
            )
            if row == pending.rows:
                return None
            so_far = self._fragment_bytes + float(
                self._rule.bytes_per_row[pending.inputs[:row]].sum()
            )
            if so_far * _MIN_CUT_SHARE >= self._rule.fragment_bytes:
                return row
            self._cut_keys.popleft()
        return None

    def _take(self, rows: int) -> OutputGroup:
        assert self._pending is not None
        head, self._pending = _split(self._pending, rows)
        group = OutputGroup(head.keys, head.inputs, self._starts_fragment)
        self._starts_fragment = False
        self._fragment_bytes += float(self._rule.bytes_per_row[head.inputs].sum())
        return group


def _join(a: MergeWindow, b: MergeWindow) -> MergeWindow:
    if a.rows == 0:
        return b
    return MergeWindow(
        [concat_storage([x, y]) for x, y in zip(a.keys, b.keys, strict=True)],
        _append(a.inputs, b.inputs),
        _append(a.starts_key, b.starts_key),
    )


def _split(window: MergeWindow, rows: int) -> tuple[MergeWindow, MergeWindow]:
    head = MergeWindow(
        [key.slice(0, rows) for key in window.keys], window.inputs[:rows], window.starts_key[:rows]
    )
    rest = MergeWindow(
        [key.slice(rows) for key in window.keys], window.inputs[rows:], window.starts_key[rows:]
    )
    return head, rest


def _append(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.concatenate((a, b))
