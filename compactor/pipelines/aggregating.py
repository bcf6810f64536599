"""Groups rows by SQL: the columns that the database reads, the query, and the columns of its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from compactor.errors import ConfigError
from compactor.pipelines.carried import carried, restored
from compactor.pipelines.database import GIVEN, Database, Rows
from compactor.pipelines.measures import measure, parse_call
from compactor.pipelines.provenance import ROW, Batches
from lsm_fragment import compute as pc
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.keys.sort_schema import SortColumn
from lsm_fragment.names import names_text


class Grouping:
    """An aggregation bound to the schema of its input."""

    def __init__(
        self,
        keys: Sequence[str],
        columns: Mapping[str, str],
        schema: pa.Schema,
        *,
        keeps_order: bool = False,
    ) -> None:
        """columns: calls by result name. keeps_order: whether groups are ordered by their first rows; else by
        their keys. Raises `ConfigError`."""
        calls = {name: parse_call(text, schema, name) for name, text in columns.items()}
        self._keys = list(keys)
        self._columns = [call.column for call in calls.values()]
        self._measures = [measure(call, schema, name) for name, call in calls.items()]
        self._keeps_order = keeps_order
        self.uses = {*keys, *(column for column in self._columns if column is not None)}
        """The columns that are read."""
        self.schema = pa.schema(
            [(key, _key_type(schema, key)) for key in keys]
            + [(name, m.type) for name, m in zip(columns, self._measures, strict=True)]
        )
        hidden = [(ROW, pa.int64())] if keeps_order else []
        self.unordered_schema = pa.schema([*self.schema, *starmap(pa.field, hidden)])
        """What `groups` yields."""
        self.order = tuple(map(SortColumn, [ROW] if keeps_order else keys))
        empty = pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
        self._read_schema = self._read(empty, 0).schema

    def groups(self, database: Database, node: str, batches: Batches, batch_rows: int) -> Batches:
        """Yields the groups of all rows, in any order: DuckDB cannot sort long keys in little memory.

        Raises what `Database.query` raises, and `DataError`.
        """
        given = Rows(self._read_schema, self._all_read(batches))
        for found in database.query(node, self._sql(), given, batch_rows):
            yield self._result(found)

    def _all_read(self, batches: Batches) -> Batches:
        row = 0
        for batch in batches:
            yield self._read(batch, row)
            row += batch.num_rows

    def _read(self, batch: pa.RecordBatch, row: int) -> pa.RecordBatch:
        """Returns the columns that the query reads. row: number of the first row."""
        columns = {f"k{n}": _as_key(batch.column(key)) for n, key in enumerate(self._keys)}
        for number, (each, column) in enumerate(zip(self._measures, self._columns, strict=True)):
            values = None if column is None else batch.column(column)
            for place, array in enumerate(each.read(values)):
                columns[f"v{number}_{place}"] = array
        if self._keeps_order:
            columns["row"] = pa.array(np.arange(row, row + batch.num_rows))
        return pa.RecordBatch.from_pydict(columns)

    def _sql(self) -> str:
        keys = [f"k{n}" for n in range(len(self._keys))]
        chosen = list(keys)
        for number, each in enumerate(self._measures):
            prefix = f"v{number}_"
            chosen += each.sql([n for n in self._read_schema.names if n.startswith(prefix)])
        if self._keeps_order:
            chosen.append("min(row)")
        return f"SELECT {', '.join(chosen)} FROM {GIVEN} GROUP BY {', '.join(keys)}"

    def _result(self, found: pa.RecordBatch) -> pa.RecordBatch:
        columns: Iterator[pa.Array] = iter(found.columns)
        types = self.schema.types[: len(self._keys)]
        arrays = [restored(next(columns), dtype) for dtype in types]
        arrays += [
            each.result([next(columns) for _ in range(each.width)]) for each in self._measures
        ]
        return pa.RecordBatch.from_arrays([*arrays, *columns], schema=self.unordered_schema)


def _key_type(schema: pa.Schema, key: str) -> pa.DataType:
    """Returns the type of a key. Raises `ConfigError`."""
    if key not in schema.names:
        there = names_text(schema.names)
        raise ConfigError(f"no column {key!r} to group by; there are: {there}")
    dtype = schema.field(key).type
    storage = storage_type(dtype)
    is_odd = pt.is_nested(storage) or pt.is_interval(storage)
    if is_odd or isinstance(dtype, pa.BaseExtensionType):
        raise ConfigError(f"column {key!r} is {dtype}, which nothing can be grouped by")
    return dtype


def _as_key(column: pa.Array) -> pa.Array:
    """Normalises floats as sort orders do: -0.0 equals 0.0, and all NaN are equal."""
    values = carried(column)
    if not pt.is_floating(values.type):
        return values
    one_zero = pc.add(values, pa.scalar(0.0, values.type))
    return pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), values.type), one_zero)
