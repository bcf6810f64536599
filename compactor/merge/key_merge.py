"""The k-way merge of keys: from row groups of sort columns to the order of all rows.

Each step takes, of every input, the rows that no unread row can precede, and sorts them at once: a
stable sort of concatenated sorted runs is a merge, vectorised. The frontier up to which rows may be
taken is the least of the keys that lie a share of a batch ahead in each input, so that a step never
takes more rows than a batch.

A row group of one input that no other input has keys in is not put in order at all: it is handed on as it
was stored. Whether it is one is decided when all rows before it were taken, and so by the rows alone.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.merge.copied import StoredKeys
from compactor.merge.decoded import DecodedRows
from compactor.merge.loaded_rows import ComparableKey, LoadedGroup, LoadedRows
from compactor.rows.flags import Flags, RowRule
from format.arrays import concat_storage
from format.errors import OrderError
from format.keys import KeyComparator, key_at
from format.ordering import first_disorder, order_words, same_as_previous, stable_order
from format.schema import SortSchema, ordering
from format.sizes import cumulative_bytes, heaviest_value_bytes

I64 = npt.NDArray[np.int64]


def loaded_group(
    keys: Sequence[pa.Array], number: int = 0, stored: StoredKeys | None = None
) -> LoadedGroup:
    """Of a row group's sort columns."""
    rows = len(keys[0])
    heaviest = sum(heaviest_value_bytes(array) for array in keys)
    return LoadedGroup(rows, key_at(keys, 0), key_at(keys, rows - 1), heaviest, number, stored)


class KeySource(Protocol):
    """Sort columns of one sorted input, row group by row group."""

    @property
    def name(self) -> str: ...

    @property
    def keys(self) -> DecodedRows:
        """Sort columns loaded and not taken yet, as storage arrays."""
        ...

    def load_keys(self) -> LoadedGroup | None:
        """Loads the next row group into `keys`; None after the last."""
        ...

    def row_bytes(self, group_rows: int) -> int:
        """What a row of a row group of so many rows weighs in the heaviest column."""
        ...


@dataclass(frozen=True, slots=True)
class MergeWindow:
    """A stretch of merged rows, following all earlier windows."""

    keys: list[pa.Array]
    """Sort columns in output order."""
    inputs: npt.NDArray[np.uint16]
    """Which input each row comes from; each input's rows are taken in their order. Shape (rows,)."""
    starts_key: npt.NDArray[np.bool_]
    """Whether the row's key differs from the row's before it, across windows too. Shape (rows,)."""
    row_bytes: I64
    """What each row weighs in the heaviest column, by the inputs' statistics. Shape (rows,)."""
    flags: Flags | None = None
    """What becomes of the rows (`compactor.rows.flags`); None: all are written as they are. Shape (rows,)."""

    @property
    def rows(self) -> int:
        return len(self.inputs)

    @property
    def nbytes(self) -> int:
        """Of keys, inputs, flags and weights, as if no key were dictionary-coded: put together with
        others that are not, none is."""
        keys: int = sum(max(key.nbytes, int(cumulative_bytes(key)[-1])) for key in self.keys)
        return keys + 12 * self.rows


@dataclass(frozen=True, slots=True)
class CopiedRowGroup:
    """A row group of one input that comes next as a whole, following all earlier windows."""

    input: int
    group: LoadedGroup
    first_key: ComparableKey
    last_key: ComparableKey
    starts_key: bool
    """Whether its first key differs from the one of the row before it."""
    row_bytes: int
    as_window: Callable[[], MergeWindow]
    """For one who needs its rows; while the next event is not asked for."""
    pieces: Sequence[list[pa.Array]]
    """Its sort columns, end to end; so long, too."""

    @property
    def rows(self) -> int:
        return self.group.rows


def merge_keys(
    sources: Sequence[KeySource],
    compare: KeyComparator,
    sort: SortSchema,
    batch_rows: int,
    batch_bytes: int,
    rule: RowRule | None = None,
) -> Iterator[MergeWindow | CopiedRowGroup]:
    """All rows in sort order; equal keys by input, then by position.

    batch_rows, batch_bytes: of a window's keys, at most; or a few rows an input, if that is more. They change
    no row's place.
    rule: what rows of one key become. Then the key is what the rule says, every window has all rows of its
    keys, and a row group is whole only if the rule leaves it as it is.
    Raises `OrderError` for an input that is not sorted, or has more rows of one key than the rule allows.
    """
    grouping = _Grouping(sort, rule)
    buffers = [_KeyBuffer(source, compare, grouping) for source in sources]
    numbers = {id(source): i for i, source in enumerate(sources)}
    last_key: ComparableKey | None = None
    taken_keys: dict[int, ComparableKey] = {}
    """The last key taken of each input, those that have ended too."""
    while True:
        buffers = [buffer for buffer in buffers if buffer.fill(1)]
        if not buffers:
            return
        first = min(buffers, key=lambda buffer: (buffer.head_key, numbers[id(buffer.source)]))
        if first.next_group.is_candidate:
            number = numbers[id(first.source)]
            before = max((key for i, key in taken_keys.items() if i != number), default=None)
            if first.is_alone(buffers, before) and first.is_left_as_it_is():
                whole = first.take_copied(number, sort, last_key)
                last_key = taken_keys[number] = whole.last_key
                yield whole
                if whole.group.stored is not None:
                    whole.group.stored.drop()
                first.source.keys.settle()
                continue
            first.next_group.merge()
        rows, size = batch_rows // len(buffers), batch_bytes // len(buffers)
        shares = [buffer.fill_share(rows, size) for buffer in buffers]
        counts = _counts_up_to_frontier(buffers, shares, grouping, rows, size)
        if (candidate := _first_candidate(buffers, counts)) is not None:
            owner, start, first_key = candidate
            counts = [
                start if buffer is owner else buffer.count_until(first_key, count, inclusive=False)
                for buffer, count in zip(buffers, counts, strict=True)
            ]
        for buffer, count in zip(buffers, counts, strict=True):
            if count:
                taken_keys[numbers[id(buffer.source)]] = grouping.key(buffer.key_at(count - 1))
        taken = [b.take(count) for b, count in zip(buffers, counts, strict=True) if count]
        window = _order_window(taken, sort, numbers, grouping)
        for part in taken:
            part.source.keys.settle()
        last = grouping.key(compare.key(key_at(window.keys, window.rows - 1)))
        if last_key is not None:
            window.starts_key[0] = grouping.key(compare.key(key_at(window.keys, 0))) != last_key
        last_key = last
        yield window


def decided(window: MergeWindow, rule: RowRule | None) -> tuple[MergeWindow, dict[str, int]]:
    """The window with its flags, and the rows that are not to be written, by reason."""
    decision = None if rule is None else rule.decide(window.keys, window.starts_key)
    if decision is None:
        return window, {}
    return replace(window, flags=decision.flags), decision.dropped


class _Grouping:
    """By which of its sort columns rows are of one key, and what is known of such rows."""

    def __init__(self, sort: SortSchema, rule: RowRule | None) -> None:
        self.rule = rule
        self.columns = ordering(sort) if rule is None else rule.key
        self.is_whole_key = len(self.columns) == len(ordering(sort))
        self.keeps_together = rule is not None and rule.merges
        """Whether all rows of a key come in one window."""
        self.rows_per_key = rule.rows_per_key if rule is not None and rule.merges else None
        """Of one input, at most; None: any number."""
        self.least_share = 1 if self.rows_per_key is None else self.rows_per_key + 1
        """Rows to look ahead at least: those of more than one key."""

    def key(self, key: ComparableKey) -> ComparableKey:
        """Of a comparable key, what tells rows of different keys apart."""
        return key[: len(self.columns)]


@dataclass(frozen=True, slots=True)
class _Taken:
    """Rows of one input, next to each other."""

    source: KeySource
    pieces: list[list[pa.Array]]
    row_bytes: I64

    @property
    def rows(self) -> int:
        return len(self.row_bytes)


def _counts_up_to_frontier(
    buffers: Sequence[_KeyBuffer],
    shares: Sequence[int],
    grouping: _Grouping,
    share_rows: int,
    share_bytes: int,
) -> list[int]:
    """Rows of each input that come before all that is not loaded or beyond its share.

    share_rows, share_bytes: of a share, at most.
    """
    probes = [
        (buffer.key_at(share - 1), i)
        for i, (buffer, share) in enumerate(zip(buffers, shares, strict=True))
        if not buffer.is_exhausted or buffer.rows > share
    ]
    if not probes:
        return [buffer.rows for buffer in buffers]
    frontier, owner = min(probes)
    if grouping.keeps_together:
        before = grouping.key(frontier)
        counts = [
            buffer.count_until(before, share, inclusive=False)
            for buffer, share in zip(buffers, shares, strict=True)
        ]
        if not any(counts):
            raise _too_many_rows(buffers[owner].source.name, grouping)
        return counts
    # Of equal keys, those of `owner` up to its probe come after all of earlier inputs and before those of
    # later ones.
    counts = [
        share if i == owner else buffer.count_until(frontier, share, inclusive=i < owner)
        for i, (buffer, share) in enumerate(zip(buffers, shares, strict=True))
    ]
    # And those beyond it, too: where most keys are equal the others give nothing, and leave it their shares.
    free = len(buffers) - sum(count > 0 for i, count in enumerate(counts) if i != owner)
    if free > 1:
        most = buffers[owner].loaded_share(share_rows * free, share_bytes * free)
        counts[owner] = max(
            counts[owner], buffers[owner].count_until(frontier, most, inclusive=True)
        )
    return counts


def _first_candidate(
    buffers: Sequence[_KeyBuffer], counts: Sequence[int]
) -> tuple[_KeyBuffer, int, ComparableKey] | None:
    """Returns the first candidate that begins within the rows counted: its input, the rows before it there,
    and its first key. Candidates that another input is known to have keys in go through the merge."""
    loaded = sum(buffer.groups_loaded for buffer in buffers)
    found = []
    for i, (buffer, count) in enumerate(zip(buffers, counts, strict=True)):
        for start, group in buffer.candidates(count):
            if group.checked_at != loaded and _is_shared(group, buffer, buffers):
                group.merge()
                continue
            group.checked_at = loaded
            found.append((group.first_key, i, start))
            break
    if not found:
        return None
    first_key, i, start = min(found)
    return buffers[i], start, first_key


def _is_shared(group: LoadedRows, owner: _KeyBuffer, buffers: Sequence[_KeyBuffer]) -> bool:
    """Returns whether another input is known to have keys in the row group."""
    return any(
        buffer is not owner and buffer.has_key_within(group.first_key, group.last_key)
        for buffer in buffers
    )


def _too_many_rows(name: str, grouping: _Grouping) -> OrderError:
    columns = ", ".join(column.column for column in grouping.columns)
    return OrderError(
        f"{name}: it has several rows of one key ({columns}) where the table's row policy leaves "
        f"{grouping.rows_per_key} at most",
        name=name,
    )


def _not_sorted(name: str, what: str = "rows") -> OrderError:
    return OrderError(f"{name}: its {what} are not sorted", name=name)


def _order_window(
    taken: Sequence[_Taken], sort: SortSchema, numbers: dict[int, int], grouping: _Grouping
) -> MergeWindow:
    if not any(part.pieces for part in taken):
        raise OrderError(
            "rows of an input are not in the order of its sort columns: `verify` says where"
        )
    columns = [
        concat_storage([piece[index] for part in taken for piece in part.pieces])
        for index in range(len(sort))
    ]
    words = order_words(columns, sort)
    key_words = words if grouping.is_whole_key else order_words(columns, grouping.columns)
    counts = [part.rows for part in taken]
    start = 0
    for part, count in zip(taken, counts, strict=True):
        if first_disorder([word[start : start + count] for word in words]) is not None:
            raise _not_sorted(part.source.name)
        if grouping.rows_per_key is not None:
            same = same_as_previous([word[start : start + count] for word in key_words])
            if grouping.rows_per_key > 1:
                same[1:] &= same[:-1].copy()
            if same.any():
                raise _too_many_rows(part.source.name, grouping)
        start += count
    which = np.array([numbers[id(part.source)] for part in taken], dtype=np.uint16)
    inputs = np.repeat(which, counts)
    row_bytes = np.concatenate([part.row_bytes for part in taken])
    if len(taken) > 1:
        order = stable_order(words)
        positions = pa.array(order)
        columns = [column.take(positions) for column in columns]
        key_words = [word[order] for word in key_words]
        inputs, row_bytes = inputs[order], row_bytes[order]
    return MergeWindow(columns, inputs, ~same_as_previous(key_words), row_bytes)


def _check_order(source: KeySource, pieces: Sequence[list[pa.Array]], sort: SortSchema) -> None:
    """Raises `OrderError` unless rows next to each other are sorted."""
    columns = [concat_storage([piece[index] for piece in pieces]) for index in range(len(sort))]
    if first_disorder(order_words(columns, sort)) is not None:
        raise _not_sorted(source.name)


class _KeyBuffer:
    """Loaded and not yet merged keys of one input."""

    def __init__(self, source: KeySource, compare: KeyComparator, grouping: _Grouping) -> None:
        self._source = source
        self._compare = compare
        self._grouping = grouping
        self._groups: deque[LoadedRows] = deque()
        self._last_key: ComparableKey = ()
        """Of the rows loaded."""
        self._head_key: ComparableKey | None = None
        self.groups_loaded = 0
        self.is_exhausted = False

    @property
    def rows(self) -> int:
        return self._source.keys.rows

    def fill(self, rows: int) -> bool:
        """Loads until so many rows are there, or all that are left; whether there are any."""
        while self.rows < rows and not self.is_exhausted:
            group = self._source.load_keys()
            if group is None:
                self.is_exhausted = True
                break
            first_key = self._compare.key(group.first_key)
            if self._last_key and first_key < self._last_key:
                raise _not_sorted(self._source.name, "row groups")
            self._last_key = self._compare.key(group.last_key)
            self.groups_loaded += 1
            self._groups.append(
                LoadedRows.of(
                    group,
                    self._source.row_bytes(group.rows),
                    self._grouping.key(first_key),
                    self._grouping.key(self._last_key),
                )
            )
        return self.rows > 0

    @property
    def source(self) -> KeySource:
        return self._source

    @property
    def head_key(self) -> ComparableKey:
        """Of the first row not taken; there must be one."""
        if self._head_key is None:
            self._head_key = self.key_at(0)
        return self._head_key

    @property
    def next_group(self) -> LoadedRows:
        """The row group of the first row not taken; there must be one."""
        return self._groups[0]

    def candidates(self, count: int) -> Iterator[tuple[int, LoadedRows]]:
        """Yields the candidates that begin within the first `count` rows, with the rows before each."""
        start = 0
        for group in self._groups:
            if start >= count:
                return
            if group.is_candidate:
                yield start, group
            start += group.rows

    def has_key_within(self, first: ComparableKey, last: ComparableKey) -> bool:
        """Whether any row that is loaded is from `first` to `last`."""
        start = 0
        for group in self._groups:
            if group.last_key >= first:
                if group.first_key > last:
                    return False
                is_whole = group.rows == group.group.rows
                if group.last_key <= last or (is_whole and group.first_key >= first):
                    return True
                before = self.count_until(first, start + group.rows, inclusive=False)
                return self._grouping.key(self.key_at(before)) <= last
            start += group.rows
        return False

    def is_alone(self, buffers: Sequence[_KeyBuffer], before: ComparableKey | None) -> bool:
        """Returns whether no other input has keys in the next row group. before: the last key taken of the
        others.

        Where keys are equal it is not, whichever comes first: so it does not matter when this is asked.
        """
        group = self._groups[0]
        if before is not None and before >= group.first_key:
            return False
        return not any(
            other is not self and self._grouping.key(other.head_key) <= group.last_key
            for other in buffers
        )

    def is_left_as_it_is(self) -> bool:
        """Returns whether the rule changes no row of the next row group."""
        rule, group = self._grouping.rule, self._groups[0]
        return rule is None or all(
            rule.leaves(piece) for piece in self._source.keys.peek(group.rows)
        )

    def take_copied(
        self, number: int, sort: SortSchema, before: ComparableKey | None
    ) -> CopiedRowGroup:
        """The next row group; it is the caller's to settle the source. before: the last key so far."""
        group = self._groups.popleft()
        rows = group.rows
        loaded = group.copy()
        pieces = self._source.keys.take(rows)
        self._head_key = None
        _check_order(self._source, pieces, sort)

        def as_window() -> MergeWindow:
            row_bytes = np.full(rows, group.row_bytes, dtype=np.int64)
            taken = [_Taken(self._source, pieces, row_bytes)]
            window = _order_window(taken, sort, {id(self._source): number}, self._grouping)
            window.starts_key[0] = before is None or group.first_key != before
            return window

        return CopiedRowGroup(
            number,
            loaded,
            group.first_key,
            group.last_key,
            before is None or group.first_key != before,
            group.row_bytes,
            as_window,
            pieces,
        )

    def fill_share(self, most_rows: int, most_bytes: int) -> int:
        """Rows to look ahead, loaded as far as there are any: by number, and by what keys may weigh."""
        while True:
            share = self._share(most_rows, most_bytes)
            if self.is_exhausted or self.rows >= share:
                return share
            self.fill(self.rows + 1)

    def loaded_share(self, most_rows: int, most_bytes: int) -> int:
        """The same of rows that are loaded."""
        return min(self.rows, self._share(most_rows, most_bytes))

    def _share(self, most_rows: int, most_bytes: int) -> int:
        """By the row groups that are loaded."""
        rows, least = 0, self._grouping.least_share
        for group in self._groups:
            fits = most_bytes // max(1, group.group.heaviest_key_bytes)
            if rows + group.rows > min(fits, most_rows):
                return max(least, rows, min(fits, most_rows))
            rows += group.rows
        return max(least, most_rows)

    def key_at(self, row: int) -> ComparableKey:
        """The key of one of the rows loaded."""
        for piece in self._source.keys.peek(row + 1):
            if row < len(piece[0]):
                return self._key(piece, row)
            row -= len(piece[0])
        raise IndexError(row)

    def count_until(self, frontier: ComparableKey, most: int, *, inclusive: bool) -> int:
        """How many of the first `most` rows come before `frontier`, or are it if `inclusive`."""
        find = bisect.bisect_right if inclusive else bisect.bisect_left
        count = 0
        for piece in self._source.keys.peek(most):
            rows = len(piece[0])
            last = self._key(piece, rows - 1)
            if last < frontier or (inclusive and last == frontier):
                count += rows
                continue
            return count + find(range(rows), frontier, key=lambda row: self._key(piece, row))
        return count

    def take(self, rows: int) -> _Taken:
        self._head_key = None
        pieces = self._source.keys.take(rows)
        weights, counts = [], []
        while rows:
            group = self._groups[0]
            count = group.take(rows)
            weights.append(group.row_bytes)
            counts.append(count)
            rows -= count
            if not group.rows:
                self._groups.popleft()
        row_bytes = np.repeat(np.array(weights, dtype=np.int64), counts)
        return _Taken(self._source, pieces, row_bytes)

    def _key(self, piece: list[pa.Array], row: int) -> ComparableKey:
        return self._compare.key(key_at(piece, row))
