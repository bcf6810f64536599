"""Rows of a generated write, and the ways in which they come to a table."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as pt

from tests.generated.arrays import Builder
from tests.generated.bits import DAY, Value, values_of
from tests.generated.plans import ID, Append, Column
from tests.generated.types import contains
from tests.generated.values import Values

_MICROSECONDS: Final = (-(2**63) * 1000, (2**63 - 1) * 1000)
"""Times that a text file without a table has, in nanoseconds."""
_CYCLE_DAYS: Final = 146_097
"""Days after which the calendar repeats itself: 400 years."""
_JULIAN_DAYS: Final = 2_440_588
"""Days before 1970 from which INT96 counts."""
_UNSIGNED_DAYS: Final = 2**32


def rows_of(step: Append, first_id: int) -> dict[str, list[Value]]:
    """Returns the values of a write by column."""
    return {column.name: _values(step, column, first_id) for column in step.columns}


def _values(step: Append, column: Column, first_id: int) -> list[Value]:
    if column.name == ID:
        return list(range(first_id, first_id + step.rows))
    rng = random.Random(f"values {step.seed} {column.seed}")
    values = Values(
        rng,
        null_share=column.null_share,
        extremes=column.extremes,
        distinct=column.distinct,
        prefix_seed=column.seed,
        breaks_not_null=step.breaks_not_null,
    )
    return values.column(column.dtype, step.rows, nullable=column.nullable)


def table_of(step: Append, rows: dict[str, list[Value]], names: dict[str, str]) -> pa.Table:
    """Returns the rows as a table of several chunks. names: of columns, where they are called otherwise."""
    rng = random.Random(f"chunks {step.seed}")
    count = 0 if step.how == "batch" else rng.choice((0, 0, 1, 2))
    cuts = sorted(rng.randint(0, step.rows) for _ in range(count))
    fields, arrays = [], []
    for column in step.columns:
        builder = Builder(random.Random(f"array {step.seed} {column.seed}"), step.mess)
        arrays.append(
            pa.chunked_array(builder.chunks(column.dtype, rows[column.name], cuts), column.dtype)
        )
        is_nullable = column.nullable or column.dtype == pa.null()
        fields.append(pa.field(names.get(column.name, column.name), column.dtype, is_nullable))
    return pa.table(arrays, schema=pa.schema(fields))


def in_memory(table: pa.Table, how: str) -> Any:
    """Returns the rows as one of the things that have Arrow's stream interface."""
    if how == "batch":
        batches = table.to_batches()
        return batches[0] if len(batches) == 1 else table  # it has no rows
    if how == "batches":
        return pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    return table


def ipc_bytes(table: pa.Table, how: str) -> bytes:
    """Returns an IPC file or stream of the rows. Raises where Arrow cannot write them."""
    sink = pa.BufferOutputStream()
    new = pa.ipc.new_file if how == "ipc file" else pa.ipc.new_stream
    with new(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def can_be_parquet(dtype: pa.DataType) -> bool:
    """Returns whether PyArrow writes such a column, and reads what it wrote."""
    return not contains(
        dtype,
        lambda t: (
            pt.is_interval(t)
            or (pt.is_struct(t) and not t.num_fields)
            or (pt.is_fixed_size_list(t) and t.list_size == 0)
            or (pt.is_fixed_size_binary(t) and t.byte_width == 0)
            or (pt.is_decimal(t) and not 0 <= t.scale <= t.precision)
        ),
    )  # fmt: skip


def write_parquet(
    table: pa.Table, path: Path, rng: random.Random
) -> tuple[dict[str, list[Value]], bool]:
    """Writes a Parquet file; returns what PyArrow reads from it, and whether its INT96 timestamps are such
    that no type has them all. Raises where it cannot."""
    times = {name: list(_times(table.column(name))) for name in table.column_names}
    days = [time // DAY + _JULIAN_DAYS for some in times.values() for time in some]
    as_int96 = all(abs(day) < _UNSIGNED_DAYS // 2 for day in days) and rng.random() < 0.5
    pq.write_table(
        table,
        path,
        version=rng.choice(("1.0", "2.4", "2.6")),
        data_page_version=rng.choice(("1.0", "2.0")),
        use_dictionary=rng.random() < 0.7,
        compression=rng.choice(("none", "snappy", "zstd")),
        row_group_size=rng.choice((1, 2, 3, 7, 1_000)),
        store_schema=rng.random() < 0.7,
        write_statistics=rng.random() < 0.7,
        data_page_size=rng.choice((8, 1 << 20)),
        write_page_index=rng.random() < 0.3,
        use_deprecated_int96_timestamps=as_int96,
    )
    if not as_int96:
        return _read(path), False
    in_nanoseconds, found = _read(path), _read(path, "us")
    for name, some in times.items():
        if any(time % 1_000 for time in some):
            found[name] = in_nanoseconds[name]
    return found, any(map(_fits_no_unit, times.values()))


def _read(path: Path, int96_unit: str = "ns") -> dict[str, list[Value]]:
    read = pq.read_table(path, coerce_int96_timestamp_unit=int96_unit)
    return {name: values_of(read.column(at)) for at, name in enumerate(read.column_names)}


def _fits_no_unit(times: Sequence[int]) -> bool:
    """Returns whether INT96 timestamps, in nanoseconds, fit neither nanoseconds nor microseconds."""
    fit_finer = all(-(2**63) <= time < 2**63 for time in times)
    low, high = max(_MICROSECONDS[0], -_JULIAN_DAYS * DAY), _MICROSECONDS[1] + 999
    is_fine = any(time % 1_000 for time in times)
    return not all(low <= time <= high for time in times) or (is_fine and not fit_finer)


def _times(column: pa.ChunkedArray) -> Iterator[int]:
    """Yields the timestamps of a column, at any depth, in nanoseconds."""
    if contains(column.type, pt.is_timestamp):
        for value in values_of(column):
            yield from _within(value, column.type)


def _within(value: Value, dtype: pa.DataType) -> Iterator[int]:
    if pt.is_dictionary(dtype):
        dtype = dtype.value_type
    if value is None:
        return
    if pt.is_timestamp(dtype):
        yield value
    elif pt.is_struct(dtype):
        for field, (_, item) in zip(dtype, value, strict=True):
            yield from _within(item, field.type)
    elif pt.is_map(dtype):
        for key, item in value:
            yield from _within(key, dtype.key_type)
            yield from _within(item, dtype.item_type)
    elif contains(dtype, pt.is_timestamp):
        for item in value:
            yield from _within(item, dtype.value_type)


def as_text_has_them(column: Column, values: Sequence[Value], *, known: bool) -> list[Value]:
    """Returns values of which a text file tells the type. known: whether the table tells it."""
    return [
        None if value is None else _texted(column.dtype, value, known=known) for value in values
    ]


def _texted(dtype: pa.DataType, value: Value, *, known: bool) -> Value:
    if isinstance(value, str) and (value in ("inf", "-inf") or value.startswith("nan")):
        return None
    if isinstance(value, bytes):
        value = value.replace(b"\x00", b"0")
        return value if known else b"t" + value  # or else it may look like a number
    if pt.is_temporal(dtype):
        low, high = _MICROSECONDS
        step = DAY if pt.is_date32(dtype) else 1_000
        return min(max(value, low), high) // step * step
    return value


def text_of(how: str, step: Append, rows: dict[str, list[Value]], names: dict[str, str]) -> bytes:
    """Returns the rows as CSV or NDJSON."""
    shown = [names.get(column.name, column.name) for column in step.columns]
    cells = [[_cell(column.dtype, v) for v in rows[column.name]] for column in step.columns]
    if how == "ndjson":
        keys = [json.dumps(name, ensure_ascii=False) for name in shown]
        lines = []
        for place, line in enumerate(zip(*cells, strict=True)):
            # Nulls are written or left out, but for the first line, so that every column is known.
            pairs = [
                f"{k}: {c}"
                for k, c in zip(keys, line, strict=True)
                if c != "null" or place % 2 == 0
            ]
            lines.append("{" + ", ".join(pairs) + "}")
        return "".join(line + "\n" for line in lines).encode()
    lines = [",".join(_quoted(name) for name in shown)]
    lines += [",".join(map(_csv_cell, line)) for line in zip(*cells, strict=True)]
    return "".join(line + "\n" for line in lines).encode()


def _cell(dtype: pa.DataType, value: Value) -> str:
    """Returns a value as JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return json.dumps(value.decode(), ensure_ascii=False)
    if isinstance(value, str):
        return repr(float.fromhex(value))
    if pt.is_date(dtype):
        return json.dumps(_date(value // DAY))
    if pt.is_timestamp(dtype):
        return json.dumps(_time(value) + ("Z" if dtype.tz else ""))
    return str(value)


def _time(nanoseconds: int) -> str:
    days, rest = divmod(nanoseconds, DAY)
    time = dt.datetime(2000, 1, 1) + dt.timedelta(microseconds=rest // 1_000)
    return f"{_date(days)}T{time.time().isoformat()}"


def _date(days: int) -> str:
    """Returns a day since 1970 as ISO 8601, extended where a year has not four digits."""
    cycles, within = divmod(days, _CYCLE_DAYS)
    near = dt.date(1970, 1, 1) + dt.timedelta(days=within)
    year = near.year + 400 * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{near.month:02d}-{near.day:02d}"


def _csv_cell(cell: str) -> str:
    if cell == "null":
        return ""
    return _quoted(json.loads(cell)) if cell.startswith('"') else cell


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
