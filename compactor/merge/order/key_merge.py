"""Merges keys of k inputs: turns row groups of sort columns into the order of all rows.

Each input gives its keys to a tournament a slice at a time, as normalised keys. A batch is what the
tournament has put in order when its rows or their keys reach a limit. It has no sort columns: those stay in
their inputs until the caller takes them, for as many rows as it likes.

A row group in whose key range no other input has keys is not put in order: it is copied as it was stored.
That is decided when all rows before it were merged, and so depends only on the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct, field

from compactor.merge.inputs.decoded import DecodedRows
from compactor.merge.inputs.loaded_rows import LoadedGroup, LoadedRows
from compactor.merge.order.keys_in_order import borrowed
from compactor.merge.order.tournament import KeySlice, Tournament
from compactor.resources.merge_plan import WAITING_ROW_BYTES
from compactor.resources.reservation import Pins
from compactor.rows.flags import Decision, Flags, RowRule
from lsm_fragment.arrays.joining import concat_storage
from lsm_fragment.arrays.sizes import heaviest_value_bytes, total_bytes
from lsm_fragment.errors import OrderError
from lsm_fragment.gather.columns import gather
from lsm_fragment.gather.origins import Origins
from lsm_fragment.keys.comparator import ComparableKey, KeyComparator
from lsm_fragment.keys.normalised import (
    KeyColumns,
    KeyLayout,
    SortKeys,
    same_as_previous,
    sort_keys,
)
from lsm_fragment.keys.sort_schema import SortSchema, ordering
from lsm_fragment.names import names_text
from lsm_fragment.native.keys.key_merge import Stop

I64 = npt.NDArray[np.int64]
_MAX_SLICE_BYTES: Final = 256 << 10
"""Do not make an input's slice larger than this, since that saves no more time."""
_MIN_SLICE_ROWS: Final = 1024
"""Give a slice at least this many rows, even if an input's share of a batch is smaller, unless their keys are
too large."""


class KeySource(Protocol):
    """A source of the sort columns of one sorted input, row group by row group."""

    @property
    def name(self) -> str: ...

    @property
    def keys(self) -> DecodedRows:
        """Sort columns that are loaded and not taken yet, as storage arrays. The batch's consumer removes
        its rows, in order; the merge reads ahead of them."""
        ...

    def load_keys(self) -> LoadedGroup | None:
        """Loads the next row group into `keys`; None after the last."""
        ...

    def row_bytes(self, group_rows: int) -> int:
        """Returns the bytes of a row in the heaviest column, for a row group of `group_rows` rows."""
        ...


class MergedBatch(Struct, frozen=True, kw_only=True):
    """A stretch of merged rows that follows all earlier batches."""

    inputs: npt.NDArray[np.uint16]
    """The input of each row; each input's rows are taken in their order. Shape (rows,)."""
    starts_key: npt.NDArray[np.bool_]
    """Whether the row's key differs from that of the row before, across batches too. Shape (rows,)."""
    row_bytes: I64
    """Bytes of each row in the heaviest column, by the inputs' statistics. Shape (rows,)."""
    key_bytes: int
    """About how many bytes the rows' keys have."""
    flags: Flags | None = None
    """The fate of each row (`compactor.rows.flags`); None if all are written. Shape (rows,)."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Number of rows that are not written, by reason."""

    @property
    def rows(self) -> int:
        return len(self.inputs)

    @property
    def nbytes(self) -> int:
        """Bytes of inputs, starts, weights and flags."""
        return WAITING_ROW_BYTES * self.rows


class CopiedRowGroup(Struct, frozen=True, kw_only=True):
    """A row group of one input that comes next as a whole, after all earlier batches."""

    input: int
    group: LoadedGroup
    first_key: ComparableKey
    last_key: ComparableKey
    starts_key: bool
    """Whether its first key differs from that of the row before it."""
    row_bytes: int
    as_batch: Callable[[], MergedBatch]
    """Returns its rows as a batch, which is not copied then. Callable only until the caller asks for the
    next event."""
    pieces: Sequence[list[pa.Array]]
    """Its sort columns in pieces; valid as long as `as_batch`."""

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
) -> Iterator[MergedBatch | CopiedRowGroup]:
    """Yields all rows in sort order; rows of equal keys by input, then by position.

    The caller takes the sort columns of a batch's rows from the sources when it likes; those of a copied row
    group are taken when it asks for the next event, and before that it must have taken all rows before it.

    batch_rows, batch_bytes: the most rows and bytes of a batch's keys, or a few rows per input if that is
    more. They do not change the order.
    rule: merges rows of one key. With a rule, the rule defines the key, every batch has all rows of its
    keys, and a row group is copied only if the rule leaves it as it is.
    Raises `OrderError` for an input that is not sorted, or has more rows of one key than the rule allows.
    """
    if sources:
        yield from _KeyMerge(sources, compare, sort, batch_rows, batch_bytes, rule).run()


def merge_rows(
    sources: Sequence[KeySource],
    compare: KeyComparator,
    sort: SortSchema,
    batch_rows: int,
    batch_bytes: int,
    rule: RowRule | None = None,
) -> Iterator[MergedBatch]:
    """Yields batches like `merge_keys`, for callers without use for sort columns: takes these away when it is
    asked for the next batch. No row group of the sources may be copied."""
    for batch in merge_keys(sources, compare, sort, batch_rows, batch_bytes, rule):
        assert isinstance(batch, MergedBatch)
        yield batch
        drop_keys(sources, batch)


def drop_keys(sources: Sequence[KeySource], batch: MergedBatch) -> None:
    """Removes the sort columns of a batch's rows from the sources."""
    counts = Origins.of(batch.inputs, len(sources)).counts.tolist()
    for source, count in zip(sources, counts, strict=True):
        source.keys.drop(count)


class _KeyMerge:
    """One merge of keys: brings slices to the tournament, and decides which row groups are copied."""

    def __init__(
        self,
        sources: Sequence[KeySource],
        compare: KeyComparator,
        sort: SortSchema,
        batch_rows: int,
        batch_bytes: int,
        rule: RowRule | None,
    ) -> None:
        self._sort = sort
        self._rule = rule
        self._rows_per_key = rule.rows_per_key if rule is not None and rule.merges else 0
        """The most rows of one key in one input; 0 for any number. With it, batches have whole keys."""
        slice_rows = max(_MIN_SLICE_ROWS, batch_rows // len(sources))
        slice_bytes = min(_MAX_SLICE_BYTES, batch_bytes // len(sources))
        self._inputs = [
            _Input(source, compare, sort, slice_rows, slice_bytes) for source in sources
        ]
        self._in_batches = np.zeros(len(sources), dtype=np.int64)
        """Rows of each input that were in batches or copied."""
        key = ordering(sort) if rule is None else rule.key
        self._key: KeyLayout | None = None
        if len(key) < len(ordering(sort)):
            self._key = KeyLayout([dtype for dtype, _ in compare.layout.columns[: len(key)]], key)
        max_rows = max(batch_rows, self._rows_per_key * len(sources) + 1)
        self._tournament = Tournament(
            len(sources), max_rows, batch_bytes, self._key, self._rows_per_key
        )

    def run(self) -> Iterator[MergedBatch | CopiedRowGroup]:
        tournament = self._tournament
        for number in range(len(self._inputs)):
            self._bring(number)
        tournament.start()
        while True:
            stop = tournament.run()
            source = self._inputs[tournament.first]
            match stop:
                case Stop.DONE:
                    yield from self._batches(tournament.rows)
                    return
                case Stop.FULL:
                    yield from self._full_batches()
                case Stop.NEEDS_SLICE:
                    self._bring(tournament.first)
                    tournament.go_on()
                case Stop.AT_GATE:
                    if self._is_copied(source):
                        yield from self._batches(tournament.rows)
                        yield from self._copied(source)
                    else:
                        source.group.merge()
                        self._bring(tournament.first)
                case Stop.DISORDER:
                    raise _not_sorted(source.name)
                case Stop.TOO_MANY:
                    raise self._too_many_rows(source.name)

    def _bring(self, number: int) -> None:
        """Gives the tournament the next keys of an input."""
        source = self._inputs[number]
        if not source.has_rows():
            self._tournament.end(number)
        elif source.group.is_candidate:
            self._tournament.gate(number, source.first_key_of_group())
        else:
            piece, more_bytes = source.next_slice()
            self._tournament.put(number, piece, source.group.row_bytes, more_bytes)

    def _full_batches(self) -> Iterator[MergedBatch]:
        rows = self._tournament.rows
        if self._rows_per_key:
            rows = self._tournament.rows_of_whole_groups()
            if not rows:
                self._tournament.allow_more_bytes()
        yield from self._batches(rows)

    def _batches(self, rows: int) -> Iterator[MergedBatch]:
        """Yields the batch of the first rows in order, if there are any."""
        if not rows:
            return
        key_bytes = self._tournament.key_bytes
        merged = self._tournament.take(rows)
        decision = self._decision(merged.inputs, merged.starts_group)
        yield MergedBatch(
            inputs=merged.inputs,
            starts_key=merged.starts_group,
            row_bytes=merged.row_bytes,
            key_bytes=key_bytes,
            flags=None if decision is None else decision.flags,
            dropped={} if decision is None else decision.dropped,
        )

    def _decision(
        self, inputs: npt.NDArray[np.uint16], starts: npt.NDArray[np.bool_]
    ) -> Decision | None:
        """Returns what becomes of a batch's rows; None if all are written as they are."""
        if self._rule is None:
            return None
        sources = [source.keys for source in self._inputs]
        skips = self._in_batches - np.array([source.taken for source in sources])
        self._in_batches += Origins.of(inputs, len(sources)).counts
        columns = {}
        if self._rule.decides_by:
            keys = borrowed(sources, inputs, skips)
            for place in self._rule.decides_by:
                columns[place] = gather(keys.columns[place], keys.origins)
            keys.pins.free()
        return self._rule.decide(columns, starts)

    def _is_copied(self, source: _Input) -> bool:
        """Returns whether the next row group of the first input is copied. Equal keys of another input count
        as keys in its range, whichever come first, so the answer does not depend on when this is asked."""
        group = source.group
        if not self._tournament.is_alone(group.first_key, group.last_key):
            return False
        return self._rule is None or all(map(self._rule.leaves, source.ahead()))

    def _copied(self, source: _Input) -> Iterator[CopiedRowGroup]:
        """Yields the next row group of the first input as a whole."""
        number = self._tournament.first
        group = source.group
        is_copied = True
        pins = Pins()
        pieces = source.borrow_group(pins)
        starts_key = self._tournament.starts_group(group.first_key)

        def as_batch() -> MergedBatch:
            nonlocal is_copied
            is_copied = False
            columns = [concat_storage(list(parts)) for parts in zip(*pieces, strict=True)]
            key = ordering(self._sort) if self._rule is None else self._rule.key
            starts = ~same_as_previous(sort_keys(columns, key))
            starts[0] = starts_key
            inputs = np.full(len(starts), number, dtype=np.uint16)
            row_bytes = np.full(len(starts), group.row_bytes, dtype=np.int64)
            key_bytes = sum(map(total_bytes, columns))
            return MergedBatch(
                inputs=inputs, starts_key=starts, row_bytes=row_bytes, key_bytes=key_bytes
            )

        loaded = group.copy()
        self._tournament.skip(group.last_key)
        yield CopiedRowGroup(
            input=number,
            group=loaded,
            first_key=self._part(group.first_key),
            last_key=self._part(group.last_key),
            starts_key=starts_key,
            row_bytes=group.row_bytes,
            as_batch=as_batch,
            pieces=pieces,
        )
        if loaded.stored is not None:
            loaded.stored.drop()
        if is_copied:
            source.keys.drop(loaded.rows)
        pins.free()
        self._in_batches[number] += loaded.rows
        self._bring(number)
        self._tournament.go_on()

    def _part(self, key: ComparableKey) -> ComparableKey:
        return key if self._key is None else self._key.prefix_of(key)

    def _too_many_rows(self, name: str) -> OrderError:
        assert self._rule is not None
        columns = names_text(column.column for column in self._rule.key)
        return OrderError(
            f"{name}: it has several rows of one key ({columns}) where the table's row policy leaves "
            f"{self._rows_per_key} at most",
            name=name,
        )


def _not_sorted(name: str) -> OrderError:
    return OrderError(f"{name}: its rows are not sorted", name=name)


class _Input:
    """One input and its loaded keys. The tournament has the first of them, which wait to be taken."""

    def __init__(
        self,
        source: KeySource,
        compare: KeyComparator,
        sort: SortSchema,
        slice_rows: int,
        slice_bytes: int,
    ) -> None:
        self._source = source
        self._compare = compare
        self._carried = range(len(ordering(sort)), len(sort))
        """Places of the sort columns that do not decide the order."""
        self._slice_rows = slice_rows
        self._slice_bytes = slice_bytes
        self._given = 0
        """Rows that were given to the tournament, or copied."""
        self._group: LoadedRows | None = None
        self._last_key: ComparableKey = b""
        """The last key that was given or copied."""

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def keys(self) -> DecodedRows:
        return self._source.keys

    @property
    def group(self) -> LoadedRows:
        """The row group of the next rows."""
        assert self._group is not None
        return self._group

    def has_rows(self) -> bool:
        """Loads the next row group if need be. Returns whether there are rows that were not given yet."""
        while self._group is None or not self._group.rows:
            loaded = self._source.load_keys()
            if loaded is None:
                return False
            row_bytes = self._source.row_bytes(loaded.rows)
            if loaded.stored is None:
                self._group = LoadedRows(group=loaded, rows=loaded.rows, row_bytes=row_bytes)
                continue
            first_key = self._compare.key(loaded.first_key)
            if first_key < self._last_key:
                raise _not_sorted(self.name)
            last_key = self._compare.key(loaded.last_key)
            self._group = LoadedRows.candidate(loaded, row_bytes, first_key, last_key)
        return True

    def first_key_of_group(self) -> KeySlice:
        key = np.frombuffer(self.group.first_key, dtype=np.uint8)
        return KeySlice.of(SortKeys(1, key, np.array([0, len(key)]), 0))

    def next_slice(self) -> tuple[KeySlice, int]:
        """Takes the next rows of the row group. Returns their keys, and the extra bytes of each row."""
        ahead = self.keys.key_rows(self._waiting_rows, self._compare.layout)
        rows = min(ahead.rows, self._slice_rows, self.group.rows)
        keys = ahead.keys.keys(ahead.start, rows, self._slice_bytes)
        if keys.key(0) < self._last_key:
            raise _not_sorted(self.name)
        self._last_key = keys.key(keys.rows - 1)
        self._given += self.group.take(keys.rows)
        carried = (ahead.arrays[place].slice(ahead.start, rows) for place in self._carried)
        return KeySlice.of(keys), sum(map(heaviest_value_bytes, carried))

    def ahead(self) -> list[list[pa.Array]]:
        """Returns the sort columns of the row group's next rows, in pieces."""
        return list(self.keys.peek(self._waiting_rows, self.group.rows))

    def borrow_group(self, pins: Pins) -> list[list[pa.Array]]:
        """Gives all rows of the row group away. Returns their sort columns in pieces, whose memory it
        pins."""
        rows = self.group.rows
        found = self.keys.borrow(self._waiting_rows, rows, pins)
        self._given += rows
        pieces = [part.arrays() for part in found]
        for piece in pieces:
            columns = KeyColumns(piece, self._compare.layout)
            if columns.key(0) < self._last_key or columns.first_disorder() is not None:
                raise _not_sorted(self.name)
            self._last_key = columns.key(len(piece[0]) - 1)
        return pieces

    @property
    def _waiting_rows(self) -> int:
        """Rows that were given and not taken yet."""
        return self._given - self.keys.taken
