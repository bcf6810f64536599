"""Finds window functions in expressions and evaluates them over sorted rows, block by block in bounded
memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt
from sqlglot import expressions as exp

from compactor.errors import ConfigError
from compactor.pipelines.batch_size import BatchSize
from compactor.pipelines.config import MAX_WINDOW_ROWS
from compactor.pipelines.expressions import computing
from compactor.pipelines.segments import Frames
from compactor.pipelines.window_calls import (
    Count,
    Extreme,
    First,
    FloatSum,
    Last,
    RowNumber,
    Shift,
    Sum,
    WindowFunction,
    WindowRows,
)
from compactor.predicate.computed import Expression, parsed_expression
from compactor.predicate.sql import SHOWN, SqlError, path_of, shown_node, whole_number
from compactor.resources.budget import MemoryBudget
from compactor.resources.reservation import Reservation
from lsm_fragment.arrays.batches import concat_rows
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.errors import SchemaError
from lsm_fragment.keys.normalised import same_as_previous, sort_keys
from lsm_fragment.keys.sort_schema import SortColumn, check_sort_schema

_WINDOW_FUNCTIONS: Final = (
    exp.RowNumber, exp.Lag, exp.Lead, exp.First, exp.FirstValue, exp.Last, exp.LastValue, exp.Count,
    exp.Sum, exp.Min, exp.Max, exp.Avg,
)  # fmt: skip
_HELD_COPIES: Final = 3
"""Copies of the held rows: as they came, concatenated, and with results."""
_KNOWN: Final = (
    "row_number(), lag(x[, n]), lead(x[, n]), first(x), last(x), count(*), count(x), sum(x), min(x), "
    "max(x), avg(x)"
)
_ARGUMENTS: Final = {"this", "offset", "big_int"}
"""Arguments that window functions may have. The parser sets `big_int` itself."""


class WindowedColumns:
    """Expressions with window functions, bound to a schema.

    The values of the functions become columns, which the expressions then read.
    """

    def __init__(
        self, texts: Mapping[str, str], schema: pa.Schema, frame_rows: int | None, what: str
    ) -> None:
        """texts: expressions by result name. frame_rows: maximum rows of a frame.

        Raises `ConfigError` for invalid SQL, unknown functions, and type mismatches.
        """
        self._schema = schema
        self._frame_rows = frame_rows
        self._arguments: dict[str, tuple[str, Expression]] = {}
        """By column: the first result that takes it, for errors, and the expression."""
        self._calls: dict[str, tuple[WindowFunction, str | None]] = {}
        self._names: dict[str, str] = {}
        self.uses: set[str] = set()
        """The schema's columns that the expressions use."""
        trees = {}
        for name, text in texts.items():
            self._result, self._what = name, f"{what}: column {name!r}"
            tree = parsed_expression(text, self._what)
            self.uses |= self._columns_of(tree)
            trees[name] = self._without_calls(tree)
        added = [(name, call.type) for name, (call, _) in self._calls.items()]
        full = pa.schema([*schema, *added])
        self.columns = {
            name: Expression(texts[name], full, f"{what}: column {name!r}", tree)
            for name, tree in trees.items()
        }

    def with_arguments(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Adds the function arguments as columns.

        Raises `pa.ArrowException` for values outside an argument's domain.
        """
        for name, (result, argument) in self._arguments.items():
            with computing(f"column {result!r}"):
                batch = batch.append_column(name, argument(batch))
        return batch

    def over(
        self,
        batches: Iterable[pa.RecordBatch],
        partition_by: Sequence[str],
        batch_size: BatchSize,
        budget: MemoryBudget,
        stage: str,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows with the values of the functions; call at most once.

        batches: results of `with_arguments`, in window order. Raises `DataError` if a sum overflows.
        """
        calls = [call for call, _ in self._calls.values()]
        frame = self._frame_rows or 1
        held = _Held(
            partition_by,
            max([frame - 1, 1, *(call.rows_before for call in calls)]),
            max([0, *(call.rows_after for call in calls)]),
        )
        # Blocks of at least the rows around one, so that each is read only a few times.
        for more in batch_size.joined(batches, held.rows_around):
            with Reservation(budget, stage, _HELD_COPIES * (held.nbytes + more.nbytes)):
                held.append(more)
                yield from self._values(held, is_end=False)
        if held.rows is not None:
            with Reservation(budget, stage, _HELD_COPIES * held.nbytes):
                yield from self._values(held, is_end=True)

    def _values(self, held: _Held, *, is_end: bool) -> Iterator[pa.RecordBatch]:
        start, stop = held.wanted(is_end=is_end)
        if start == stop:
            return
        assert held.rows is not None
        frames = Frames(held.numbers, start, stop, self._frame_rows)
        rows = WindowRows(held.numbers, start, stop, frames)
        result = held.rows.slice(start, stop - start)
        for name, (call, argument) in self._calls.items():
            values = None if argument is None else held.rows.column(argument)
            result = result.append_column(name, call(rows, values))
        held.forget(stop)
        yield result.drop_columns(list(self._arguments))

    def _columns_of(self, tree: exp.Expression) -> set[str]:
        try:
            return {path_of(node, self._schema)[0].name for node in tree.find_all(exp.Column)}
        except SqlError as error:
            raise ConfigError(f"{self._what}: {error}") from None

    def _without_calls(self, tree: exp.Expression) -> exp.Expression:
        return tree.transform(self._call_as_column)

    def _call_as_column(self, tree: exp.Expression) -> exp.Expression:
        if isinstance(tree, exp.Window):
            raise self._error(tree, "leave out OVER: the node's `window` says it")
        if not isinstance(tree, _WINDOW_FUNCTIONS):
            if isinstance(tree, exp.AggFunc):
                raise self._error(tree, f"is not understood; known are {_KNOWN}")
            return tree
        text = tree.sql()
        if text not in self._names:
            has_more = {name for name, value in tree.args.items() if value} - _ARGUMENTS
            if has_more or isinstance(tree.this, exp.Distinct):
                raise self._error(tree, f"is not understood; known are {_KNOWN}")
            name = self._names[text] = self._free_name()
            self._calls[name] = self._call(tree)
        column = exp.column(self._names[text], quoted=True)
        column.meta[SHOWN] = text
        return column

    def _call(self, tree: exp.Expression) -> tuple[WindowFunction, str | None]:
        match tree:
            case exp.RowNumber() if tree.this is None:
                return RowNumber(), None
            case exp.Count() if isinstance(tree.this, exp.Star):
                return Count(), None
        if tree.this is None or isinstance(tree, exp.RowNumber):
            raise self._error(tree, f"is not understood; known are {_KNOWN}")
        argument = Expression(tree.this.sql(), self._schema, self._what, tree.this)
        dtype = argument.type
        name = self._free_name()
        self._arguments[name] = (self._result, argument)
        return self._call_of(tree, dtype), name

    def _call_of(self, tree: exp.Expression, dtype: pa.DataType) -> WindowFunction:
        match tree:
            case exp.Lag():
                return Shift(dtype, -self._offset(tree))
            case exp.Lead():
                return Shift(dtype, self._offset(tree))
            case exp.First() | exp.FirstValue():
                return First(dtype)
            case exp.Last() | exp.LastValue():
                return Last(dtype)
            case exp.Count():
                return Count()
            case exp.Min() | exp.Max():
                try:
                    check_sort_schema(pa.schema([("x", dtype)]), (SortColumn("x"),))
                except SchemaError:
                    raise self._error(tree, f"{dtype} has no order") from None
                return Extreme(dtype, is_max=isinstance(tree, exp.Max))
        is_mean = isinstance(tree, exp.Avg)
        if pt.is_floating(dtype):
            return FloatSum(is_mean=is_mean)
        if pt.is_integer(dtype) or pt.is_decimal(dtype) or pt.is_boolean(dtype):
            return Sum(dtype, f"{self._what}: {tree.sql()}", is_mean=is_mean)
        raise self._error(tree, f"{dtype} is not a number")

    def _offset(self, tree: exp.Expression) -> int:
        offset = tree.args.get("offset")
        if offset is None:
            return 1
        rows = whole_number(offset, MAX_WINDOW_ROWS)
        if rows is None or offset.is_string:
            raise self._error(tree, f"the number of rows must be from 0 to {MAX_WINDOW_ROWS:,}")
        return rows

    def _free_name(self) -> str:
        number = len(self._names) + len(self._arguments)
        while (name := f"$window{number}") in self._schema.names:
            number += 1_000
        return name

    def _error(self, tree: exp.Expression, message: str) -> ConfigError:
        return ConfigError(f"{self._what}: {shown_node(tree)!r}: {message}")


class _Held:
    """Rows not yet computed, with the context rows that the functions read."""

    def __init__(self, partition_by: Sequence[str], before: int, after: int) -> None:
        self._partition_by = list(partition_by)
        self._before, self._after = before, after
        self._done = 0
        self.rows: pa.RecordBatch | None = None
        self.numbers: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    @property
    def rows_around(self) -> int:
        return self._before + self._after

    @property
    def nbytes(self) -> int:
        return 0 if self.rows is None else int(self.rows.nbytes)

    def append(self, more: pa.RecordBatch) -> None:
        last = None if self.rows is None else self.rows.slice(self.rows.num_rows - 1)
        joined = more if last is None else concat_rows([last, more])
        same = self._same_partition(joined)
        if last is not None:
            same = same[1:]
        places = np.arange(more.num_rows)
        # Until the first partition start, rows continue the numbering of the previous block.
        first = -int(self.numbers[-1]) if len(self.numbers) else 0
        begins = np.maximum.accumulate(np.where(same, first, places))
        self.numbers = np.concatenate([self.numbers, places - begins + 1])
        self.rows = more if self.rows is None else concat_rows([self.rows, more])

    def wanted(self, *, is_end: bool) -> tuple[int, int]:
        """Returns the range of rows that can be computed now."""
        stop = len(self.numbers) if is_end else len(self.numbers) - self._after
        return self._done, max(self._done, stop)

    def forget(self, done: int) -> None:
        """Drops rows that are no longer needed once all rows before `done` are computed."""
        assert self.rows is not None
        drop = max(0, done - self._before)
        self.rows, self.numbers = self.rows.slice(drop), self.numbers[drop:].copy()
        self._done = done - drop

    def _same_partition(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Returns whether each row continues the previous row's partition; False for row 0. Shape (rows,)."""
        if not self._partition_by:
            return np.arange(rows.num_rows) > 0
        keys = [to_storage(rows.column(name)) for name in self._partition_by]
        return same_as_previous(sort_keys(keys, tuple(map(SortColumn, self._partition_by))))
