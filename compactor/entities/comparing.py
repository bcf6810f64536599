"""Compares datasets with what the last run read of them, row by row and without parsing any."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from compactor.entities.dataset_rows import Rows, place_in, rows_in
from compactor.entities.datasets import Located
from compactor.entities.entities import U64, Entities, RowSource
from compactor.entities.memo import KeptDataset
from compactor.entities.memory import Charge
from compactor.entities.reading import read_rows
from compactor.entities.sources import Part, Source
from compactor.entities.texts import I64
from compactor.files.parquet_groups import StoredGroup
from compactor.table.snapshot import Snapshot


class NotProvenError(Exception):
    """A part of the entities does not decide what changes: the run has to look at all of them."""


class _Group(NamedTuple):
    """A row group of a Parquet file."""

    number: int
    rows: int
    held: list[Rows] | None = None
    """The rows, if they have been read."""


class _Piece(NamedTuple):
    """The rows of a file or table."""

    part: Located
    snapshot: Snapshot | None
    rows: int
    groups: Sequence[_Group]
    """The row groups, if they can be told from each other; else empty."""
    held: list[Rows] | None = None
    """The rows, if they have been read and the groups do not have them."""

    def read(self, start: int, wanted: I64) -> Iterator[tuple[int, Rows]]:
        """Yields rows, each with the dataset's row that is their first: at least those that are wanted.

        start: the dataset's row that is the piece's first. wanted: ascending. Raises `NotProvenError` if the
        file has fewer rows now.
        """
        if not self.groups:
            held = self.held
            for rows in rows_in(self.part, self.snapshot) if held is None else held:
                yield start, rows
                start += rows.count
            return
        firsts = start + np.cumsum([0, *(group.rows for group in self.groups)])
        places = np.flatnonzero(np.diff(np.searchsorted(wanted, firsts))).tolist()
        chosen = [self.groups[place] for place in places]
        unread = _rows_of(self.part, [group for group in chosen if group.held is None])
        for place, group in zip(places, chosen, strict=True):
            at = int(firsts[place])
            for rows in next(unread) if group.held is None else group.held:
                yield at, rows
                at += rows.count


def _rows_of(part: Located, groups: Sequence[_Group]) -> Iterator[list[Rows]]:
    """Yields the rows of each row group, from one open file. Raises `NotProvenError` if it has fewer now."""
    if not groups:
        return
    found = rows_in(part, None, [group.number for group in groups])
    for group in groups:
        held: list[Rows] = []
        while (left := group.rows - sum(rows.count for rows in held)) > 0:
            rows = next(found, None)
            if rows is None or rows.count > left:
                raise NotProvenError
            held.append(rows)
        yield held


class Compared:
    """A dataset as it is now."""

    def __init__(
        self, located: Located | None, name: str, kept: KeptDataset, started_ns: int, charge: Charge
    ) -> None:
        """Reads the files and tables that may have changed; of Parquet files, the row groups that have.

        name: the dataset's. started_ns: when the run started, in Unix time. Raises `InputError`.
        """
        self._located, self._name, self._charge = located, name, charge
        self._kept = kept
        self._pieces: list[_Piece] = []
        self._hashes: list[U64] = []
        self._rows = 0
        self._same: list[tuple[int, int, int]] = []
        """First row now and then, and number of rows, of what has not changed."""
        self.parts: list[Part] = []
        known = {part.place: (part, start) for part, start in _with_starts(kept.parts)}
        for part in () if located is None else located.whole:
            source = Source(part)
            before, start = known.get(part.place, (None, 0))
            if before is not None and before.version == source.version(started_ns) != "":
                groups = [_Group(number, group.rows) for number, group in enumerate(before.groups)]
                self._add_known(start, before.rows)
                self._pieces.append(_Piece(part, source.snapshot, before.rows, groups))
                self.parts.append(before)
                continue
            first = self._rows
            source.look_at_groups()
            if before is None or not before.groups or not source.groups:
                held = list(rows_in(part, source.snapshot))
                self._add_new(held)
                piece = _Piece(part, source.snapshot, self._rows - first, (), held)
            else:
                groups = self._compared_groups(part, source.groups, before, start)
                piece = _Piece(part, None, self._rows - first, groups)
            self._pieces.append(piece)
            self.parts.append(source.read(started_ns, piece.rows))
            if piece.groups and not self.parts[-1].groups:
                raise NotProvenError  # rows of two states of the file
        self.rows: U64 = np.concatenate([np.zeros(0, np.uint64), *self._hashes])
        """Hash of each row as it stands in the input."""
        self.origins = self._origins()
        """The row of the last run that each row is, or -1."""

    def _compared_groups(
        self, part: Located, groups: Sequence[StoredGroup], before: Part, start: int
    ) -> list[_Group]:
        """start: the first row that the last run read of the file."""
        starts: dict[StoredGroup, deque[int]] = defaultdict(deque)
        for group in before.groups:
            starts[group].append(start)
            start += group.rows
        found = [starts[group].popleft() if starts[group] else None for group in groups]
        numbered = [_Group(number, group.rows) for number, group in enumerate(groups)]
        unknown = [group for group, known in zip(numbered, found, strict=True) if known is None]
        compared, read = [], _rows_of(part, unknown)
        for each, known in zip(numbered, found, strict=True):
            held = None
            if known is None:
                self._add_new(held := next(read))
            else:
                self._add_known(known, each.rows)
            compared.append(_Group(each.number, each.rows, held))
        return compared

    def _add_known(self, start: int, rows: int) -> None:
        """Adds rows that are as they were. start: the row of the last run that is their first."""
        self._same.append((self._rows, start, rows))
        self._hashes.append(self._kept.rows[start : start + rows])
        self._rows += rows

    def _add_new(self, held: Sequence[Rows]) -> None:
        own = [rows.hashes() for rows in held]
        self._charge(sum(rows.nbytes for rows in held) + sum(each.nbytes for each in own))
        self._hashes += own
        self._rows += sum(map(len, own))

    def _origins(self) -> I64:
        kept = self._kept
        origins = np.full(len(self.rows), -1)
        is_open, is_left = np.ones(len(self.rows), np.bool_), np.ones(len(kept.rows), np.bool_)
        for now, then, count in self._same:
            origins[now : now + count] = np.arange(then, then + count)
            is_open[now : now + count] = is_left[then : then + count] = False
        left = np.flatnonzero(is_left)
        at = matched(kept.rows[left], self.rows[is_open])
        origins[is_open] = np.where(at < 0, -1, left[at] if len(left) else -1)
        return origins

    def entities(self, rows: I64) -> tuple[Entities, I64]:
        """Returns the entities of some rows, and the row of each. rows: ascending.

        Raises `NotProvenError` unless each row is one entity, and is what its hash was made of.
        """
        place = self._name if self._located is None else self._located.shown
        ids = () if self._located is None else self._located.id_columns
        source = RowSource(place, self._place_of(rows), ids)
        entities, order = read_rows(self._taken(rows), source, self._charge)
        if len(order) != len(rows):
            raise NotProvenError
        return entities, rows[order]

    def _place_of(self, rows: I64) -> partial[str]:
        def place(row: int) -> str:
            assert self._located is not None, "no rows without a dataset"
            return place_in(self._located, int(rows[row]))

        return partial(place)

    def _taken(self, wanted: I64) -> Iterator[Rows]:
        start = 0
        for piece in self._pieces:
            first, last = np.searchsorted(wanted, [start, start + piece.rows])
            if last > first:
                yield from self._taken_of(piece, start, wanted[first:last])
            start += piece.rows

    def _taken_of(self, piece: _Piece, start: int, wanted: I64) -> Iterator[Rows]:
        """start: the dataset's row that is the first of the piece."""
        done = 0
        for first, rows in piece.read(start, wanted):
            end = int(np.searchsorted(wanted, first + rows.count))
            if end > done:
                some = rows.take(wanted[done:end] - first)
                if not np.array_equal(some.hashes(), self.rows[wanted[done:end]]):
                    raise NotProvenError
                yield some
            done = end
            if done == len(wanted):
                return
        raise NotProvenError


def _with_starts(parts: Iterable[Part]) -> Iterator[tuple[Part, int]]:
    start = 0
    for part in parts:
        yield part, start
        start += part.rows


def matched(old: U64, new: U64) -> I64:
    """Returns the position in `old` of each hash in `new`, or -1.

    Raises `NotProvenError` if a hash comes twice, so that it does not name a row.
    """
    found = np.full(len(new), -1)
    length = min(len(old), len(new))
    agree = old[:length] == new[:length]
    front = length if agree.all() else int(np.argmin(agree))
    if len(old) == len(new):
        found[:length][agree] = np.flatnonzero(agree)
    else:
        found[:front] = np.arange(front)
        ends = old[len(old) - length :] == new[len(new) - length :]
        back = min(length - front, length if ends.all() else int(np.argmin(ends[::-1])))
        found[len(new) - back :] = np.arange(len(old) - back, len(old))
    is_left = np.ones(len(old), np.bool_)
    is_left[found[found >= 0]] = False
    left, asked = np.flatnonzero(is_left), np.flatnonzero(found < 0)
    if len(left) and len(asked):
        order = left[np.argsort(old[left], kind="stable")]
        places = np.minimum(np.searchsorted(old[order], new[asked]), len(order) - 1)
        is_same = old[order][places] == new[asked]
        found[asked[is_same]] = order[places[is_same]]
    if len(old) and np.bincount(found[found >= 0], minlength=1).max(initial=0) > 1:
        raise NotProvenError
    return found
