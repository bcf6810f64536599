"""Groups rows: the columns that the database reads, its query, and the columns of the result.

Functions of sorted values are computed beside the query: it counts their values, and says in which order the
groups come (`value_runs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from compactor.errors import ConfigError
from compactor.pipelines.aggregate_calls import Call, parse_call
from compactor.pipelines.batch_size import BatchSize
from compactor.pipelines.carried import carried, restored
from compactor.pipelines.database import GIVEN, Database, Rows
from compactor.pipelines.expressions import computing
from compactor.pipelines.grouped_values import GroupedValues, GroupNumbers, Stream, parts
from compactor.pipelines.measures import ROW_NUMBER, Measure, is_flat, measure
from compactor.pipelines.provenance import ROW, Batches
from compactor.pipelines.sorting import Sorter
from compactor.pipelines.value_runs import value_runs
from compactor.predicate.computed import Expression
from compactor.resources.reservation import Reservation
from lsm_fragment import compute as pc
from lsm_fragment.arrays.batches import no_rows
from lsm_fragment.arrays.buffers import integer_array
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.keys.sort_schema import SortColumn
from lsm_fragment.names import names_text


def calls_of(columns: Mapping[str, str], schema: pa.Schema, what: str) -> list[Call]:
    """Returns the calls of an aggregate. Raises `ConfigError`. Arguments as those of `Grouping`."""
    return [parse_call(text, schema, f"{what}: column {name!r}") for name, text in columns.items()]


class Grouping:
    """An aggregation bound to the schema of its input."""

    def __init__(
        self,
        keys: Sequence[str],
        columns: Mapping[str, str],
        schema: pa.Schema,
        what: str,
        *,
        keeps_order: bool = False,
    ) -> None:
        """columns: calls by result name. what: subject of messages. keeps_order: whether rows come group by
        group, and groups are ordered by their first rows; else by their keys. Without keys, all rows are one
        group. Raises `ConfigError`."""
        calls = calls_of(columns, schema, what)
        self._keys = list(keys)
        self._key_types = [_key_type(schema, key, what) for key in keys]
        self._names = list(columns)
        self._keeps_order = keeps_order or not keys
        self._arguments: dict[str, tuple[str, Expression]] = {}
        """By column of the batches with arguments: the first result that takes it, and its expression."""
        for name, call in zip(columns, calls, strict=True):
            for each in call.arguments:
                self._arguments.setdefault(_column_of(each.text), (name, each))
        self._reads = [[_column_of(e.text) for e in call.arguments] for call in calls]
        self._measures: list[Measure] = [measure(call) for call in calls]
        self.values = self._values_of(calls)
        self.unordered_schema = self._unordered_schema()
        """What `groups` yields."""
        self.order = tuple(map(SortColumn, [ROW] if self._keeps_order else keys))
        types = {name: each.type for name, each in zip(columns, self._measures, strict=True)}
        for values in self.values:
            types |= {name: function.type for name, function in values.functions.items()}
        self.schema = pa.schema([*zip(keys, self._key_types, strict=True), *types.items()])
        self._read_schema = self._read(self.with_arguments(no_rows(schema)), 0).schema

    def _values_of(self, calls: Sequence[Call]) -> list[GroupedValues]:
        keys = None if self._keeps_order else self._key_types
        found: dict[tuple[str, bool], GroupedValues] = {}
        for name, call in zip(self._names, calls, strict=True):
            if (function := value_runs(call)) is not None:
                argument = call.arguments[0]
                kind = (_column_of(argument.text), function.is_by_value)
                if kind not in found:
                    found[kind] = GroupedValues(*kind, argument.type, keys)
                found[kind].functions[name] = function
        return list(found.values())

    def _unordered_schema(self) -> pa.Schema:
        fields = [
            *zip(self._keys, self._key_types, strict=True),
            *((name, each.type) for name, each in zip(self._names, self._measures, strict=True)),
        ]
        hidden = [(ROW, pa.int64())] if self._keeps_order else []
        return pa.schema(list(starmap(pa.field, [*fields, *hidden])))

    # --- rows ---

    def with_arguments(self, batch: pa.RecordBatch, *kept: str) -> pa.RecordBatch:
        """Returns the keys that are there, the arguments of the functions, and the columns in `kept`.

        Raises `pa.ArrowException` for values outside an argument's domain, naming the result.
        """
        names = [*self._keys, *kept]
        columns = {name: batch.column(name) for name in names if name in batch.schema.names}
        for name, (result, argument) in self._arguments.items():
            with computing(f"column {result!r}"):
                columns[name] = argument(batch)
        return pa.RecordBatch.from_pydict(columns)

    def groups(self, database: Database, node: str, batches: Batches, size: BatchSize) -> Batches:
        """Yields the groups of all rows, in any order: DuckDB cannot sort long keys in little memory.

        batches: results of `with_arguments`. Raises what `Database.query` raises, and `DataError`.
        """
        given = Rows(self._read_schema, self._all_read(batches))
        for found in database.query(node, self._sql(), given, size):
            yield self._result(found)

    def put_values(self, batches: Batches, sorters: Sequence[Sorter]) -> Batches:
        """Yields the batches, and gives their values to the sorters of `values`."""
        numbers = GroupNumbers(self._keys)
        for batch in batches:
            if self.values:
                keys = (
                    [pa.array(numbers(batch))]
                    if self._keeps_order
                    else [batch.column(key) for key in self._keys]
                )
                for values, sorter in zip(self.values, sorters, strict=True):
                    sorter.append(values.known(batch, keys))
            yield batch

    def _all_read(self, batches: Batches) -> Batches:
        row = 0
        for batch in batches:
            yield self._read(batch, row)
            row += batch.num_rows

    def _read(self, batch: pa.RecordBatch, row: int) -> pa.RecordBatch:
        """Returns the columns that the query reads. row: number of the first row."""
        columns = {f"k{n}": _as_key(batch.column(key)) for n, key in enumerate(self._keys)}
        for number, (each, names) in enumerate(zip(self._measures, self._reads, strict=True)):
            for place, array in enumerate(each.read([batch.column(name) for name in names])):
                columns[f"v{number}_{place}"] = array
        if self._keeps_order or any(each.reads_row_numbers for each in self._measures):
            columns[ROW_NUMBER] = integer_array(np.arange(row, row + batch.num_rows))
        return pa.RecordBatch.from_pydict(columns)

    def _sql(self) -> str:
        keys = [f"k{n}" for n in range(len(self._keys))]
        chosen = list(keys)
        for number, each in enumerate(self._measures):
            prefix = f"v{number}_"
            chosen += each.sql([n for n in self._read_schema.names if n.startswith(prefix)])
        if self._keeps_order:
            chosen.append(f"min({ROW_NUMBER})")
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        return f"SELECT {', '.join(chosen)} FROM {GIVEN}{by}"

    def _result(self, found: pa.RecordBatch) -> pa.RecordBatch:
        columns: Iterator[pa.Array] = iter(found.columns)
        arrays = [restored(next(columns), dtype) for dtype in self._key_types]
        arrays += [
            each.result([next(columns) for _ in range(each.width)]) for each in self._measures
        ]
        return pa.RecordBatch.from_arrays([*arrays, *columns], schema=self.unordered_schema)

    # --- groups in order ---

    def finished(
        self,
        groups: Batches,
        sorted_values: Sequence[Batches],
        memory: Reservation,
        max_bytes: int,
    ) -> Batches:
        """Yields groups with the values of all functions. groups: in order. memory: for what is held
        meanwhile, `max_bytes` of values at a time unless a group has more. Raises `DataError`."""
        streams = [Stream(batches) for batches in sorted_values]
        for batch in groups:
            for part in parts(batch, self.values, max_bytes):
                columns = dict(zip(part.schema.names, part.columns, strict=True))
                for values, stream in zip(self.values, streams, strict=True):
                    columns |= values.computed(stream, part, memory)
                memory.free()
                yield pa.RecordBatch.from_arrays(
                    [columns[name] for name in self.schema.names], schema=self.schema
                )


def _column_of(text: str) -> str:
    """Returns the name of an argument's column."""
    return f"$argument {text}"


def _key_type(schema: pa.Schema, key: str, what: str) -> pa.DataType:
    """Returns the type of a key. Raises `ConfigError`."""
    if key not in schema.names:
        there = names_text(schema.names)
        raise ConfigError(f"{what}: no column {key!r} to group by; there are: {there}")
    dtype = schema.field(key).type
    if not is_flat(storage_type(dtype)) or isinstance(dtype, pa.BaseExtensionType):
        raise ConfigError(
            f"{what}: column {key!r} is {dtype}, which nothing can be grouped by: "
            "take a value of it in a transform, and group by that"
        )
    return dtype


def _as_key(column: pa.Array) -> pa.Array:
    """Normalises floats as sort orders do: -0.0 equals 0.0, and all NaN are equal."""
    values = carried(column)
    if not pt.is_floating(values.type):
        return values
    one_zero = pc.add(values, pa.scalar(0.0, values.type))
    return pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), values.type), one_zero)
