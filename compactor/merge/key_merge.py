"""Merges keys of k inputs: turns row groups of sort columns into the order of all rows.

Each step takes from every input the rows that no unread row can precede, and sorts them at once: a stable
sort of concatenated sorted runs is a vectorised merge. The frontier up to which rows may be taken is the
least of the keys that lie a share of a batch ahead in each input, so that a step never takes more rows than a
batch.

A row group in whose key range no other input has keys is not put in order: it is copied as it was stored.
That is decided when all rows before it were taken, and so depends only on the rows.
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
    """Returns the loaded group of a row group's sort columns."""
    rows = len(keys[0])
    heaviest = sum(heaviest_value_bytes(array) for array in keys)
    return LoadedGroup(rows, key_at(keys, 0), key_at(keys, rows - 1), heaviest, number, stored)


class KeySource(Protocol):
    """A source of the sort columns of one sorted input, row group by row group."""

    @property
    def name(self) -> str: ...

    @property
    def keys(self) -> DecodedRows:
        """Sort columns that are loaded and not taken yet, as storage arrays."""
        ...

    def load_keys(self) -> LoadedGroup | None:
        """Loads the next row group into `keys`; None after the last."""
        ...

    def row_bytes(self, group_rows: int) -> int:
        """Returns the bytes of a row in the heaviest column, for a row group of `group_rows` rows."""
        ...


@dataclass(frozen=True, slots=True)
class MergeWindow:
    """A stretch of merged rows that follows all earlier windows."""

    keys: list[pa.Array]
    """Sort columns in output order."""
    inputs: npt.NDArray[np.uint16]
    """The input of each row; each input's rows are taken in their order. Shape (rows,)."""
    starts_key: npt.NDArray[np.bool_]
    """Whether the row's key differs from that of the row before, across windows too. Shape (rows,)."""
    row_bytes: I64
    """Bytes of each row in the heaviest column, by the inputs' statistics. Shape (rows,)."""
    flags: Flags | None = None
    """What becomes of each row (`compactor.rows.flags`); None if all are written. Shape (rows,)."""

    @property
    def rows(self) -> int:
        return len(self.inputs)

    @property
    def nbytes(self) -> int:
        """Bytes of keys, inputs, flags and weights, as if no key were dictionary-coded: joined with plain
        keys, none stays dictionary-coded."""
        keys: int = sum(max(key.nbytes, int(cumulative_bytes(key)[-1])) for key in self.keys)
        return keys + 12 * self.rows


@dataclass(frozen=True, slots=True)
class CopiedRowGroup:
    """A row group of one input that comes next as a whole, after all earlier windows."""

    input: int
    group: LoadedGroup
    first_key: ComparableKey
    last_key: ComparableKey
    starts_key: bool
    """Whether its first key differs from that of the row before it."""
    row_bytes: int
    as_window: Callable[[], MergeWindow]
    """Returns its rows as a window. Callable only until the caller asks for the next event."""
    pieces: Sequence[list[pa.Array]]
    """Its sort columns in pieces; valid as long as `as_window`."""

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
    """Yields all rows in sort order; rows of equal keys by input, then by position.

    batch_rows, batch_bytes: the most rows and bytes of a window's keys, or a few rows per input if that is
    more. They do not change the order.
    rule: what rows of one key become. With a rule, the rule decides what the key is, every window has all
    rows of its keys, and a row group is copied only if the rule leaves it as it is.
    Raises `OrderError` for an input that is not sorted, or has more rows of one key than the rule allows.
    """
    grouping = _Grouping(sort, rule)
    buffers = [_KeyBuffer(source, compare, grouping) for source in sources]
    numbers = {id(source): i for i, source in enumerate(sources)}
    last_key: ComparableKey | None = None
    taken_keys: dict[int, ComparableKey] = {}
    """The last key taken from each input, including inputs that have ended."""
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
    """Applies the rule. Returns the window with its flags, and the number of rows not written, by reason."""
    decision = None if rule is None else rule.decide(window.keys, window.starts_key)
    if decision is None:
        return window, {}
    return replace(window, flags=decision.flags), decision.dropped


class _Grouping:
    """The sort columns that make up the key, and what is known of rows of one key."""

    def __init__(self, sort: SortSchema, rule: RowRule | None) -> None:
        self.rule = rule
        self.columns = ordering(sort) if rule is None else rule.key
        self.is_whole_key = len(self.columns) == len(ordering(sort))
        self.keeps_together = rule is not None and rule.merges
        """Whether all rows of a key must come in one window."""
        self.rows_per_key = rule.rows_per_key if rule is not None and rule.merges else None
        """The most rows of one key in one input; None for any number."""
        self.least_share = 1 if self.rows_per_key is None else self.rows_per_key + 1
        """The least number of rows to look ahead, so that they have more than one key."""

    def key(self, key: ComparableKey) -> ComparableKey:
        """Returns the part of a comparable key that distinguishes keys."""
        return key[: len(self.columns)]


@dataclass(frozen=True, slots=True)
class _Taken:
    """Consecutive rows of one input."""

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
    """Returns for each input the number of rows before all rows that are not loaded or beyond a share.

    share_rows, share_bytes: the most rows and bytes of a share.
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
    # Of rows of equal keys, those of `owner` up to its probe come after all of earlier inputs and before
    # those of later ones.
    counts = [
        share if i == owner else buffer.count_until(frontier, share, inclusive=i < owner)
        for i, (buffer, share) in enumerate(zip(buffers, shares, strict=True))
    ]
    # Rows of `owner` beyond its probe may come too: where most keys are equal, the others give no rows and
    # leave it their shares.
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
    and its first key. Candidates in which another input is known to have keys become merged groups."""
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
    """Returns whether another input is known to have keys in the row group's range."""
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
    """Raises `OrderError` unless consecutive rows are sorted."""
    columns = [concat_storage([piece[index] for piece in pieces]) for index in range(len(sort))]
    if first_disorder(order_words(columns, sort)) is not None:
        raise _not_sorted(source.name)


class _KeyBuffer:
    """The keys of one input that are loaded and not merged yet."""

    def __init__(self, source: KeySource, compare: KeyComparator, grouping: _Grouping) -> None:
        self._source = source
        self._compare = compare
        self._grouping = grouping
        self._groups: deque[LoadedRows] = deque()
        self._last_key: ComparableKey = ()
        """The last key of the loaded rows."""
        self._head_key: ComparableKey | None = None
        self.groups_loaded = 0
        self.is_exhausted = False

    @property
    def rows(self) -> int:
        return self._source.keys.rows

    def fill(self, rows: int) -> bool:
        """Loads until there are `rows` rows or no more to load. Returns whether there are any."""
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
        """Returns the key of the first row not taken; there must be one."""
        if self._head_key is None:
            self._head_key = self.key_at(0)
        return self._head_key

    @property
    def next_group(self) -> LoadedRows:
        """Returns the row group of the first row not taken; there must be one."""
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
        """Returns whether any loaded row has a key from `first` to `last`."""
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
        """Returns whether no other input has keys in the next row group's range.

        before: the last key taken from the others. Equal keys count as keys in the range, whichever comes
        first, so the answer does not depend on when this is asked.
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
        """Takes the next row group as a whole; the caller must settle the source.

        before: the last key so far.
        """
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
        """Loads and returns the number of rows to look ahead, bounded by number and by the keys' bytes."""
        while True:
            share = self._share(most_rows, most_bytes)
            if self.is_exhausted or self.rows >= share:
                return share
            self.fill(self.rows + 1)

    def loaded_share(self, most_rows: int, most_bytes: int) -> int:
        """Returns the number of loaded rows to look ahead, with the same bounds."""
        return min(self.rows, self._share(most_rows, most_bytes))

    def _share(self, most_rows: int, most_bytes: int) -> int:
        """Returns the bounded number of rows, by the row groups that are loaded."""
        rows, least = 0, self._grouping.least_share
        for group in self._groups:
            fits = most_bytes // max(1, group.group.heaviest_key_bytes)
            if rows + group.rows > min(fits, most_rows):
                return max(least, rows, min(fits, most_rows))
            rows += group.rows
        return max(least, most_rows)

    def key_at(self, row: int) -> ComparableKey:
        """Returns the key of one of the loaded rows."""
        for piece in self._source.keys.peek(row + 1):
            if row < len(piece[0]):
                return self._key(piece, row)
            row -= len(piece[0])
        raise IndexError(row)

    def count_until(self, frontier: ComparableKey, most: int, *, inclusive: bool) -> int:
        """Counts those of the first `most` rows that are before `frontier`, or equal to it if `inclusive`."""
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
