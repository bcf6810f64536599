"""Writes generated rows in the formats of log agents: zstd NDJSON, Parquet or Arrow IPC.

Builds NDJSON column by column with string kernels. Leaves null fields out, as agents do, so the files also
exercise absent keys.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FORMATS: Final = ("ndjson.zst", "parquet", "arrow")
_BATCH_ROWS: Final = 1 << 16
# JSON escapes of control characters in log text; the backslash must come first.
_ESCAPES: Final = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t"), ("\r", "\\r"))


def write_log_file(table: pa.Table, path: Path) -> None:
    """Writes `table` to `path` in the format of its extension, one of `FORMATS`."""
    if path.name.endswith(".parquet"):
        pq.write_table(table, path, compression="zstd", compression_level=1)
    elif path.name.endswith(".arrow"):
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=_BATCH_ROWS)
    elif path.name.endswith(".ndjson.zst"):
        with pa.CompressedOutputStream(str(path), "zstd") as out:
            for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
                out.write(ndjson_lines(batch).buffers()[2])
    else:
        raise ValueError(f"{path}: the name must end with one of {', '.join(FORMATS)}")


def ndjson_lines(batch: pa.RecordBatch) -> pa.StringArray:
    """Returns a JSON object and a line feed per row, without null fields."""
    names = batch.schema.names
    fields = [_json_field(name, batch.column(name), i == 0) for i, name in enumerate(names)]
    lines = pc.binary_join_element_wise("{", *fields, "}\n", "")
    return pa.concat_arrays([lines])


def _json_field(name: str, column: pa.Array, is_first: bool) -> pa.StringArray:
    if is_first and column.null_count:
        raise ValueError(f"the first column must not have nulls, {name} has")
    prefix = f'"{name}":' if is_first else f',"{name}":'
    field = pc.binary_join_element_wise(prefix, _json_value(column), "")
    return pc.fill_null(field, "")


def _json_value(column: pa.Array) -> pa.StringArray:
    writers: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.StringArray]]] = [
        (pa.types.is_string, _quoted),
        (pa.types.is_timestamp, _iso_8601),
        (pa.types.is_list, _string_lists),
    ]
    for matches, write in writers:
        if matches(column.type):
            return write(column)
    return column.cast(pa.string())


def _quoted(column: pa.StringArray) -> pa.StringArray:
    for plain, escaped in _ESCAPES:
        column = pc.replace_substring(column, plain, escaped)
    return pc.binary_join_element_wise('"', column, '"', "")


def _iso_8601(column: pa.TimestampArray) -> pa.StringArray:
    """Formats times as `2026-11-16T06:00:00.123456Z`; with T and Z every JSON reader recognizes them."""
    text = pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1)
    return pc.binary_join_element_wise('"', text, '"', "")


def _string_lists(column: pa.ListArray) -> pa.StringArray:
    """Formats lists of non-null strings, which need no escapes."""
    joined = pc.binary_join(column, '","')
    filled = pc.binary_join_element_wise('["', joined, '"]', "")
    return pc.if_else(pc.equal(pc.list_value_length(column), 0), "[]", filled)
