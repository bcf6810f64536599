"""Compares datasets with what the last run read of them, row by row and without parsing any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
from compactor.table.snapshot import Snapshot


class NotProvenError(Exception):
    """A part of the entities does not decide what changes: the run has to look at all of them."""


class _Piece(NamedTuple):
    """The rows of a file or table."""

    part: Located
    snapshot: Snapshot | None
    held: list[Rows] | None
    """The rows, if they have been read."""


class Compared:
    """A dataset as it is now."""

    def __init__(
        self, located: Located | None, name: str, kept: KeptDataset, started_ns: int, charge: Charge
    ) -> None:
        """Reads the files and tables that may have changed.

        name: the dataset's. started_ns: when the run started, in Unix time. Raises `InputError`.
        """
        self._located, self._name, self._charge = located, name, charge
        self._pieces: list[_Piece] = []
        self.parts: list[Part] = []
        known = {part.place: (part, start) for part, start in _with_starts(kept.parts)}
        hashes: list[U64] = []
        same: list[tuple[int, int, int]] = []
        for part in () if located is None else located.whole:
            source = Source(part)
            before, start = known.get(part.place, (None, 0))
            if (
                before is not None
                and before.version
                and before.version == source.version(started_ns)
            ):
                held = None
                same.append((sum(map(len, hashes)), start, before.rows))
                hashes.append(kept.rows[start : start + before.rows])
                self.parts.append(before)
            else:
                held = list(rows_in(part, source.snapshot))
                hashes += (own := [rows.hashes() for rows in held])
                charge(sum(rows.nbytes for rows in held) + sum(each.nbytes for each in own))
                version = source.version(started_ns)
                self.parts.append(Part(part.place, version, sum(map(len, own))))
            self._pieces.append(_Piece(part, source.snapshot, held))
        self.rows: U64 = np.concatenate([np.zeros(0, np.uint64), *hashes])
        """Hash of each row as it stands in the input."""
        self.origins = self._origins(kept, same)
        """The row of the last run that each row is, or -1."""

    def _origins(self, kept: KeptDataset, same: Iterable[tuple[int, int, int]]) -> I64:
        """same: first row now and then, and number of rows, of each file that has not changed."""
        origins = np.full(len(self.rows), -1)
        is_open, is_left = np.ones(len(self.rows), np.bool_), np.ones(len(kept.rows), np.bool_)
        for now, then, count in same:
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
        for piece, part in zip(self._pieces, self.parts, strict=True):
            first, last = np.searchsorted(wanted, [start, start + part.rows])
            if last > first:
                yield from self._taken_of(piece, start, wanted[first:last])
            start += part.rows

    def _taken_of(self, piece: _Piece, start: int, wanted: I64) -> Iterator[Rows]:
        """start: the dataset's row that is the first of the piece."""
        done = 0
        for rows in rows_in(piece.part, piece.snapshot) if piece.held is None else piece.held:
            end = int(np.searchsorted(wanted, start + rows.count))
            if end > done:
                some = rows.take(wanted[done:end] - start)
                if not np.array_equal(some.hashes(), self.rows[wanted[done:end]]):
                    raise NotProvenError
                yield some
            done, start = end, start + rows.count
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
