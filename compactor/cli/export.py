"""Implements `export`."""

from __future__ import annotations

import click

from compactor.cli.display import progress
from compactor.cli.output import echo_json, echo_line, human_bytes
from compactor.cli.read import columns_option, split_columns, warn_of_left_out, where_option
from compactor.cli.shared_options import (
    skip_missing_option,
    snapshot_options,
    threads_option,
)
from compactor.cli.tables import open_view
from compactor.common.counts import counted
from compactor.common.plain_values import plain_dict
from compactor.files.write import check_sink_path
from compactor.table.tags import Moment


@click.command(
    "export",
    epilog="""\b
Examples:
  compactor export ./logs all.parquet
  compactor export s3://bucket/logs errors.ndjson.zst --columns timestamp,level,message
  compactor export ./logs errors.parquet --where "level = 'ERROR' AND status >= 500\"""",
)
@click.argument("table")
@click.argument("out")
@columns_option
@where_option
@threads_option
@skip_missing_option
@snapshot_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def export_command(
    table: str,
    out: str,
    columns: str | None,
    where: str | None,
    threads: int | None,
    skip_missing: bool,
    moment: Moment,
    as_json: bool,
) -> None:
    """Write the rows of TABLE to the file OUT in sort order.

    OUT ends in .parquet, .arrow, .frag, .ndjson or .csv (text also .gz, .zst, .bz2, .xz). The command
    streams, and also works on tables that are not compacted. The file appears whole or not at all. Parquet
    and Arrow files keep the types, and record how their rows are sorted.
    """
    check_sink_path(out)
    view = open_view(table, moment)
    scan = view.scan(split_columns(columns), where, threads=threads, skip_missing=skip_missing)
    with progress(f"export {out}", view.rows) as advance:
        done = scan.to_file(out, on_progress=advance)
    warn_of_left_out(scan.report)
    if as_json:
        echo_json({"out": out, **plain_dict(done), "scan": plain_dict(scan.report)})
        return
    if where is not None:
        click.echo(f"{scan.report}", err=True)
    echo_line(
        f"{out}: {counted(done.rows, 'row')}, {human_bytes(done.arrow_bytes)} in memory, "
        f"version {done.version}"
    )
