"""The known values of an expression, sorted by group, beside the groups in the same order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.pipelines.provenance import Batches
from compactor.pipelines.value_runs import ValueRuns
from compactor.resources.reservation import Reservation
from lsm_fragment.arrays.batches import concat_rows, keep_rows
from lsm_fragment.arrays.sizes import running_totals, spans_within
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.keys.normalised import same_as_previous, sort_keys
from lsm_fragment.keys.sort_schema import SortColumn

_VALUE: Final = "value"
_MAX_VALUES: Final = 1 << 16
"""Limit for the values whose functions are computed at once; a group with more is computed alone."""
_TEXT_COPIES: Final = 3
"""Copies of texts while they are joined: as they came, end to end, and the result."""


class GroupedValues:
    """Values that several functions may read in one pass."""

    def __init__(
        self,
        column: str,
        is_by_value: bool,
        dtype: pa.DataType,
        keys: Sequence[pa.DataType] | None,
    ) -> None:
        """column: of the values. keys: the types of the groups' keys; None if groups are numbered."""
        self._column = column
        by = [pa.int64()] if keys is None else keys
        names = [f"k{n}" for n in range(len(by))]
        self.schema = pa.schema([*zip(names, by, strict=True), (_VALUE, dtype)])
        """What is sorted."""
        self.order = tuple(map(SortColumn, [*names, *([_VALUE] if is_by_value else [])]))
        self.functions: dict[str, ValueRuns] = {}
        """By column of the result, where each group has its number of values."""
        self._rows = self._bytes = 0

    def known(self, batch: pa.RecordBatch, keys: Sequence[pa.Array]) -> pa.RecordBatch:
        """Returns the rows to be sorted."""
        column = batch.column(self._column)
        rows = pa.RecordBatch.from_arrays([*keys, column], schema=self.schema)
        rows = keep_rows(rows, column.is_valid()) if column.null_count else rows
        self._rows += rows.num_rows
        self._bytes += rows.column(_VALUE).nbytes
        return rows

    @property
    def value_bytes(self) -> float:
        """The average size of the values."""
        return self._bytes / max(1, self._rows)

    def counts(self, groups: pa.RecordBatch) -> npt.NDArray[np.int64]:
        counts: npt.NDArray[np.int64] = groups.column(next(iter(self.functions))).to_numpy()
        return counts

    def computed(
        self, stream: Stream, groups: pa.RecordBatch, memory: Reservation
    ) -> dict[str, pa.Array]:
        """Returns the values of the functions for the next groups of the stream. Raises `DataError`."""
        counts, functions = self.counts(groups), self.functions.values()
        for function in functions:
            function.begin(counts)
        holds = any(function.holds_values for function in functions)
        first = 0
        for values in stream.next(int(counts.sum())):
            if holds:
                memory.grow(_TEXT_COPIES * values.nbytes)
            for function in functions:
                function.add(values, first)
            first += len(values)
        return {name: function.end() for name, function in self.functions.items()}


def parts(groups: pa.RecordBatch, values: Sequence[GroupedValues], max_bytes: int) -> Batches:
    """Yields the groups, a bounded number of values at a time, of about `max_bytes`."""
    value_bytes = max((each.value_bytes for each in values), default=0)
    max_values = min(_MAX_VALUES, max_bytes / max(1, value_bytes))
    none = np.zeros(groups.num_rows, dtype=np.int64)
    counts = sum((each.counts(groups) for each in values), none)
    for start, stop in spans_within(running_totals(counts), max_values):
        yield groups.slice(start, stop - start)


class Stream:
    """The values of sorted rows, taken a number at a time."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._rest: pa.Array | None = None

    def next(self, count: int) -> Iterator[pa.Array]:
        """Yields the next `count` values."""
        while count:
            values = next(self._batches).column(_VALUE) if self._rest is None else self._rest
            piece = values.slice(0, count)
            self._rest = values.slice(len(piece)) if len(piece) < len(values) else None
            count -= len(piece)
            if len(piece):
                yield piece


class GroupNumbers:
    """Numbers the groups of rows that come group by group."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = list(keys)
        self._last: pa.RecordBatch | None = None
        self._number = 0

    def __call__(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Returns the number of each row's group. Shape (rows,)."""
        if not self._keys or not batch.num_rows:
            return np.zeros(batch.num_rows, dtype=np.int64)
        mine = batch.select(self._keys)
        before = [] if self._last is None else [self._last]
        columns = map(to_storage, concat_rows([*before, mine]).columns)
        keys = sort_keys(list(columns), tuple(map(SortColumn, self._keys)))
        is_new = ~same_as_previous(keys)[len(before) :]
        numbers = self._number + np.cumsum(is_new)
        self._last, self._number = mine.slice(mine.num_rows - 1), int(numbers[-1])
        return numbers
