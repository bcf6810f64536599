"""`ingest`."""

from __future__ import annotations

import functools
from pathlib import Path

import click

from compactor.cli.options import duration_seconds, skip_kinds
from compactor.cli.output import echo_json, human_bytes, progress, warn
from compactor.cli.telemetry import MetricsTargets, log_options, metrics_options, telemetry
from compactor.conform import OnConflict
from compactor.errors import CompactorError, InputError, UsageError
from compactor.ingest import IngestOptions, IngestReport, ingest_file
from compactor.metrics import mapping
from compactor.planner.debt import Debt, Pressure
from compactor.pressure import BackPressure, Reaction
from compactor.rows.policy import Function, Kind, RowPolicy, Ttl
from compactor.skipping.spec import DEFAULT_BYTES, SkipSpec
from compactor.skipping.spec import NONE as NO_SKIPS
from compactor.stores.open import open_store
from compactor.table.metadata import TimeWindows
from format.errors import FormatError, SchemaError
from format.schema import SortSchema, parse_sort_schema, sort_text
from format.writer import WriterOptions

_INGEST_EPILOG = """\b
Examples:
  compactor ingest ./logs app.ndjson --sort-by service,host,timestamp:desc
  compactor ingest s3://bucket/logs part-*.parquet
  compactor ingest ./logs big.csv.gz --rows-per-fragment 250000
  compactor ingest ./users users.ndjson --sort-by id --row-policy last --sequence updated_at

\b
--sort-by: columns, most significant first; add :desc, :nulls_first to one, as in ts:desc:nulls_first
(default: ascending, nulls last). Needed once, to create the table; a Parquet or Arrow file that says how it
is sorted gives it, too.
--row-policy: append keeps all rows; last and first keep one row of equal --sort-by, the newest or oldest by
--sequence and ingestion; partial-update the newest value of each column that is not null; aggregate each
column by its function: sum count min max last first bool_or bool_and list set.
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
@click.option("--row-policy", type=click.Choice([str(kind) for kind in Kind]),
              help="What rows of equal --sort-by are in a new table.  [default: append]")  # fmt: skip
@click.option("--sequence", help="Column whose greater values are newer, for last and first.")
@click.option("--delete-marker", help="Boolean column: rows where it is true are tombstones.")
@click.option("--drop-tombstones/--keep-tombstones", "drops_tombstones", default=None,
              help="Whether compactions drop tombstones.  [default: keep with --sequence]")  # fmt: skip
@click.option("--aggregate", "aggregates", multiple=True, metavar="COLUMN:FUNCTION",
              help="For row policy aggregate; may be given several times.")  # fmt: skip
@click.option("--ttl", type=duration_seconds, metavar="DURATION",
              help="Rows of a new table that are older are dropped by compactions.")  # fmt: skip
@click.option("--ttl-column", help="Time column that --ttl goes by.")
@click.option("--on-conflict", type=click.Choice([str(c) for c in OnConflict]), default="error",
              show_default=True, help="If a column's values have no place in the table's type: refuse "
              "the file, make the table's column text, or add the values as another column.")  # fmt: skip
@click.option("--promote", "promotes", multiple=True, metavar="COLUMN",
              help="A map or struct column that becomes a column for each key, COLUMN.KEY.")  # fmt: skip
@click.option("--skip-index", "skips", multiple=True, metavar="COLUMN:KIND",
              help="A new table keeps what queries skip row groups by: bloom or values.")  # fmt: skip
@click.option("--skip-index-bytes", type=click.IntRange(min=32), default=DEFAULT_BYTES,
              show_default=True, help="Of a column and row group at most.")  # fmt: skip
@click.option("--back-pressure", type=click.Choice([str(r) for r in Reaction]), default="warn",
              show_default=True, help="If compactions lag behind: say so, wait, or neither.")  # fmt: skip
@log_options
@metrics_options
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
    row_policy: str | None,
    sequence: str | None,
    delete_marker: str | None,
    drops_tombstones: bool | None,
    aggregates: tuple[str, ...],
    ttl: float | None,
    ttl_column: str | None,
    on_conflict: str,
    promotes: tuple[str, ...],
    skips: tuple[str, ...],
    skip_index_bytes: int,
    back_pressure: str,
    as_json: bool,
    targets: MetricsTargets,
) -> None:
    """Add FILEs to TABLE as sorted level-0 fragments; creates TABLE.

    Each file is one commit: all of its rows appear at once, or none.
    """
    sort = None if sort_by is None else _parse_sort(sort_by)
    options = IngestOptions(
        rows_per_fragment,
        WriterOptions(max_rows_per_row_group),
        _windows(time_column, time_window, retention),
        _row_policy(row_policy, sequence, delete_marker, drops_tombstones, aggregates),
        _ttl(ttl, ttl_column),
        SkipSpec(tuple((c, k) for c, k in skip_kinds(skips).items() if k), skip_index_bytes)
        if skips
        else NO_SKIPS,
        OnConflict(on_conflict),
        promotes,
    )
    warner = _Warner()
    pressure = BackPressure(Reaction(back_pressure))
    with telemetry("ingest", open_store(table).url, targets) as told:
        for path in files:
            check_input(path)
        store = told.open_store(table)
        log = told.log_of(store)
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
            told.record(functools.partial(mapping.of_ingest, report=report), store.url)
            if not as_json:
                click.echo(
                    f"{path}: {report.rows:,} rows{_superseded(report)} in {report.fragments} fragments, "
                    f"{human_bytes(report.bytes_written)}, version {report.version}{_taken_sort(report)}"
                )
    if as_json:
        echo_json(
            {
                "version": reports[-1].version,
                "files": len(reports),
                "rows": sum(report.rows for report in reports),
                "superseded_rows": sum(report.superseded_rows for report in reports),
                "fragments": sum(report.fragments for report in reports),
                "bytes_written": sum(report.bytes_written for report in reports),
                "sort_of_file": sort_text(reports[0].sort_of_file),
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


def _superseded(report: IngestReport) -> str:
    rows = report.superseded_rows
    return f" ({rows:,} merged into others of their key)" if rows else ""


def _taken_sort(report: IngestReport) -> str:
    taken = sort_text(report.sort_of_file)
    return f"; the table is sorted by {taken}, as the file says it is" if taken else ""


def _row_policy(
    kind: str | None,
    sequence: str | None,
    delete_marker: str | None,
    drops_tombstones: bool | None,
    aggregates: tuple[str, ...],
) -> RowPolicy | None:
    given = (sequence, delete_marker, drops_tombstones)
    if kind is None:
        if any(value is not None for value in given) or aggregates:
            raise UsageError(
                "--sequence, --delete-marker, --aggregate and the like belong to a --row-policy: name it too"
            )
        return None
    keeps = None if drops_tombstones is None else not drops_tombstones
    pairs = tuple(map(_aggregate, aggregates))
    if len({column for column, _ in pairs}) < len(pairs):
        raise UsageError("--aggregate: a column is named twice")
    return RowPolicy(Kind(kind), sequence, delete_marker, keeps, pairs)


def _aggregate(text: str) -> tuple[str, Function]:
    column, _, name = text.rpartition(":")
    try:
        if not column:
            raise ValueError
        return column, Function(name)
    except ValueError:
        raise UsageError(
            f"--aggregate {text!r}: give COLUMN:FUNCTION, a function being one of {', '.join(Function)}"
        ) from None


def _ttl(seconds: float | None, column: str | None) -> Ttl | None:
    if (seconds is None) != (column is None):
        raise UsageError("--ttl and --ttl-column: give both, or neither")
    if seconds is None or column is None:
        return None
    if seconds < 1:
        raise UsageError("--ttl: at least 1s")
    return Ttl(column, int(seconds))


class _Warner:
    """Says once that compactions lag behind."""

    def __init__(self) -> None:
        self._is_said = False

    def __call__(self, debt: Debt) -> None:
        if not self._is_said:
            self._is_said = True
            warn(
                f"compaction debt {debt.score:.2f} (writers should "
                f"{'stop' if debt.pressure is Pressure.STOP else 'slow down'}): {debt.level0_runs} sorted "
                "runs at level 0; run `compactor compact`, or `compactor watch` beside"
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
