"""`export` and `head`."""

from __future__ import annotations

from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq

from compactor.cli.options import open_snapshot, snapshot_options
from compactor.cli.output import human_bytes, progress
from compactor.errors import UsageError
from compactor.files.jsontext import json_lines
from compactor.files.write import check_sink_path, open_table_sink
from compactor.scan import scan, scan_schema
from compactor.table.metadata import TableMetadata
from format.schema import Nulls, Order


@click.command(
    "export",
    epilog="""\b
Examples:
  compactor export ./logs all.parquet
  compactor export s3://bucket/logs errors.ndjson.zst --columns timestamp,level,message""",
)
@click.argument("table")
@click.argument("out")
@click.option("--columns", help="Only these columns, comma-separated, in this order.")
@snapshot_options
def export_command(
    table: str, out: str, columns: str | None, version: int | None, as_of: int | None
) -> None:
    """Write the rows of TABLE to the file OUT in sort order.

    OUT ends in .parquet, .arrow, .ndjson or .csv (text also .gz, .zst). Streams; works on
    tables that are not compacted, too. The file appears whole, or not at all.
    """
    check_sink_path(out)
    store, snapshot = open_snapshot(table, version, as_of)
    names = _split(columns)
    schema = scan_schema(snapshot.table, names)
    rows = sum(entry.rows for entry in snapshot.fragments.values())
    done = size = 0
    with (
        progress(f"export {out}", rows) as advance,
        open_table_sink(out, schema, _sorting_columns(snapshot.table, schema)) as sink,
    ):
        for batch in scan(store, snapshot, names):
            sink.write(batch)
            done += batch.num_rows
            size += batch.nbytes
            advance(done)
    click.echo(f"{out}: {done:,} rows, {human_bytes(size)} in memory, version {snapshot.version}")


@click.command(
    "head",
    epilog="""\b
Examples:
  compactor head ./logs
  compactor head ./logs -n 3 --columns timestamp,message
  compactor head ./logs --as-of 15m                   as it was a quarter of an hour ago""",
)
@click.argument("table")
@click.option(
    "-n", "--rows", type=click.IntRange(min=0, max=2**63 - 1), default=10, show_default=True
)
@click.option("--columns", help="Only these columns, comma-separated, in this order.")
@snapshot_options
def head_command(
    table: str, rows: int, columns: str | None, version: int | None, as_of: int | None
) -> None:
    """Print the first rows of TABLE in sort order, one JSON object a line."""
    store, snapshot = open_snapshot(table, version, as_of)
    names = _split(columns)
    scan_schema(snapshot.table, names)
    left = rows
    for batch in scan(store, snapshot, names) if left else ():
        text = json_lines(batch.slice(0, left))
        click.echo(text.decode(), nl=False)
        left -= min(left, batch.num_rows)
        if left == 0:
            break


def _split(columns: str | None) -> list[str] | None:
    if columns is None:
        return None
    names = [name.strip() for name in columns.split(",")]
    if not all(names) or len(set(names)) != len(names):
        raise UsageError(f"--columns: {columns!r}: name each column once")
    return names


def _leaves(dtype: pa.DataType) -> int:
    """Parquet numbers the leaves of its columns."""
    if pa.types.is_dictionary(dtype) or not pa.types.is_nested(dtype):
        return 1
    return sum(_leaves(dtype.field(index).type) for index in range(dtype.num_fields))


def _sorting_columns(table: TableMetadata, schema: pa.Schema) -> list[Any]:
    """As much of the sort schema as the export keeps, for Parquet's metadata."""
    sorting = []
    for column in table.sort:
        if column.column not in schema.names:
            break
        sorting.append(
            pq.SortingColumn(
                sum(_leaves(f.type) for f in list(schema)[: schema.get_field_index(column.column)]),
                descending=column.order is Order.DESC,
                nulls_first=column.nulls is Nulls.FIRST,
            )
        )
    return sorting
