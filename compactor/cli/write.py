"""`ingest`."""

from __future__ import annotations

from pathlib import Path

import click

from compactor.cli.options import duration_seconds
from compactor.cli.output import echo_json, human_bytes, progress
from compactor.errors import CompactorError, InputError, UsageError
from compactor.ingest import IngestOptions, IngestReport, ingest_file
from compactor.planner.debt import Debt, Pressure
from compactor.pressure import BackPressure, Reaction
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.metadata import TimeWindows
from format.errors import FormatError, SchemaError
from format.schema import SortSchema, parse_sort_schema
from format.writer import WriterOptions

_INGEST_EPILOG = """\b
Examples:
  compactor ingest ./logs app.ndjson --sort-by service,host,timestamp:desc
  compactor ingest s3://bucket/logs part-*.parquet
  compactor ingest ./logs big.csv.gz --rows-per-fragment 250000

\b
--sort-by: columns, most significant first; add :desc, :nulls_first to one, as in ts:desc:nulls_first
(default: ascending, nulls last). Needed once, to create the table.
Files: .parquet .arrow .ndjson .jsonl .json .csv; text also .gz .zst. Rows need not be sorted."""


@click.command("ingest", epilog=_INGEST_EPILOG)
@click.argument("table")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--sort-by", "sort_by", help="Sort schema of a new table.")
@click.option(
    "--rows-per-fragment",
    type=click.IntRange(min=1, max=2**31 - 1),
    default=1_000_000,
    show_default=True,
    help="Rows of a level-0 fragment; a file gives one or more.",
)
@click.option("--max-rows-per-row-group", type=click.IntRange(min=1, max=2**31 - 1), default=65_536,
              show_default=True, help="Rows of a row group at most.")  # fmt: skip
@click.option("--time-column", help="Sort column that divides a new table into time windows.")
@click.option("--time-window", type=duration_seconds, metavar="DURATION", default="1d",
              show_default=True, help="Length of a time window, with --time-column.")  # fmt: skip
@click.option("--retention", type=duration_seconds, metavar="DURATION",
              help="Windows that ended longer ago are dropped.  [default: kept]")  # fmt: skip
@click.option("--back-pressure", type=click.Choice([str(r) for r in Reaction]), default="warn",
              show_default=True, help="If compactions lag behind: say so, wait, or neither.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def ingest_command(
    table: str,
    files: tuple[str, ...],
    sort_by: str | None,
    rows_per_fragment: int,
    max_rows_per_row_group: int,
    time_column: str | None,
    time_window: float,
    retention: float | None,
    back_pressure: str,
    as_json: bool,
) -> None:
    """Add FILEs to TABLE as sorted level-0 fragments; creates TABLE.

    Each file is one commit: all of its rows appear at once, or none.
    """
    sort = None if sort_by is None else _parse_sort(sort_by)
    options = IngestOptions(
        rows_per_fragment,
        WriterOptions(max_rows_per_row_group),
        _windows(time_column, time_window, retention),
    )
    warner = _Warner()
    pressure = BackPressure(Reaction(back_pressure))
    store = open_store(table)
    log = CommitLog(store)
    for path in files:
        check_input(path)
    reports: list[IngestReport] = []
    for path in files:
        try:
            pressure.admit(log, warner)
            with progress(f"ingest {Path(path).name}", None) as advance:
                report = ingest_file(store, log, path, sort, options, on_progress=advance)
        except (CompactorError, FormatError) as error:
            if reports:
                done = f"the {len(reports)} files before are in the table, version {reports[-1].version}"
                error.args = (f"{error} ({done})",)
            raise
        reports.append(report)
        if not as_json:
            click.echo(
                f"{path}: {report.rows:,} rows in {report.fragments} fragments, "
                f"{human_bytes(report.bytes_written)}, version {report.version}"
            )
    if as_json:
        echo_json(
            {
                "version": reports[-1].version,
                "files": len(reports),
                "rows": sum(report.rows for report in reports),
                "fragments": sum(report.fragments for report in reports),
                "bytes_written": sum(report.bytes_written for report in reports),
            }
        )


def _windows(
    column: str | None, window_seconds: float, retention_seconds: float | None
) -> TimeWindows | None:
    if column is None:
        if retention_seconds is not None:
            raise UsageError("--retention: name the --time-column it goes by")
        return None
    if window_seconds < 1:
        raise UsageError("--time-window: at least 1s")
    return TimeWindows(
        column, int(window_seconds), None if retention_seconds is None else int(retention_seconds)
    )


class _Warner:
    """Says once that compactions lag behind."""

    def __init__(self) -> None:
        self._is_said = False

    def __call__(self, debt: Debt) -> None:
        if not self._is_said:
            self._is_said = True
            click.echo(
                f"compactor: warning: compaction debt {debt.score:.2f} (writers should "
                f"{'stop' if debt.pressure is Pressure.STOP else 'slow down'}): {debt.level0_runs} sorted "
                "runs at level 0; run `compactor compact`, or `compactor watch` beside",
                err=True,
            )


def check_input(path: str) -> None:
    """Raises `InputError` for what can be seen before any file is read and committed."""
    if not Path(path).exists():
        raise InputError(f"{path}: no such file; nothing was ingested")
    if not Path(path).is_file():
        raise InputError(f"{path}: not a regular file; nothing was ingested")


def _parse_sort(text: str) -> SortSchema:
    try:
        return parse_sort_schema(text)
    except SchemaError as error:
        raise UsageError(f"--sort-by: {error}") from error
