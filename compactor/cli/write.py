"""`ingest` and `compact`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from compactor.cli.output import echo_json, human_bytes, progress, stderr
from compactor.commit_log import CommitLog
from compactor.compact import CompactReport, compact, plan_compactions
from compactor.config import compaction_settings
from compactor.errors import CompactorError, InputError, UsageError
from compactor.ingest import IngestOptions, IngestReport, ingest_file
from compactor.job import Compaction, Runner, run_in_process
from compactor.spark.runner import SparkRunner, is_submitted, open_session
from compactor.stores.open import open_store
from format.errors import FormatError, SchemaError
from format.schema import SortSchema, parse_sort_schema
from format.writer import WriterOptions

IN_PROCESS = "in-process"

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
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def ingest_command(
    table: str,
    files: tuple[str, ...],
    sort_by: str | None,
    rows_per_fragment: int,
    max_rows_per_row_group: int,
    as_json: bool,
) -> None:
    """Add FILEs to TABLE as sorted level-0 fragments; creates TABLE.

    Each file is one commit: all of its rows appear at once, or none.
    """
    sort = None if sort_by is None else _parse_sort(sort_by)
    options = IngestOptions(rows_per_fragment, WriterOptions(max_rows_per_row_group))
    store = open_store(table)
    log = CommitLog(store)
    for path in files:
        check_input(path)
    reports: list[IngestReport] = []
    for path in files:
        try:
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


_COMPACT_EPILOG = """\b
Examples:
  compactor compact ./logs
  compactor compact s3://bucket/logs --full --master local[2] --json
  compactor compact ./logs --master in-process        without Spark

Under spark-submit, leave --master out: the session's own master is used. Nothing is visible before
the commit; a failed or killed run leaves the table as it was."""


@click.command("compact", epilog=_COMPACT_EPILOG)
@click.argument("table")
@click.option("--full", is_flag=True, help="Merge everything into one sorted run.")
@click.option(
    "--master",
    help=f"Spark master such as local[2], or {IN_PROCESS}.  [default: local[*], or that of spark-submit]",
)
@click.option(
    "--target-fragment-bytes", type=int, help="Size of output fragments.  [default: 512 MiB]"
)
@click.option("--target-row-group-bytes", type=int,
              help="Raw bytes of a row group's heaviest column.  [default: 4 MiB]")  # fmt: skip
@click.option(
    "--max-rows-per-row-group", type=int, help="Rows of a row group at most.  [default: 65536]"
)
@click.option(
    "--compression-level", type=int, help="zstd level of outputs, 0 for none.  [default: 1]"
)
@click.option("--max-fan-in", type=int, help="Sorted runs merged by one task.  [default: 1000]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def compact_command(
    table: str, full: bool, master: str | None, as_json: bool, **settings: Any
) -> None:
    """Merge overlapping fragments of TABLE into disjoint sorted ones.

    Each group of overlapping fragments is one Spark task that reads every input by exactly one GET.
    """
    chosen = compaction_settings(**settings)
    store = open_store(table)
    log = CommitLog(store)
    # A missing table, or nothing to do, is said before Spark takes its seconds to start.
    if not plan_compactions(log.current(), chosen, full=full):
        _print_result(CompactReport(log.current().version), as_json=as_json)
        return
    runner = _runner(master)
    with progress("compact", None):

        def announce(compactions: Sequence[Compaction]) -> None:
            inputs = sum(len(c.spec.inputs) for c in compactions)
            if stderr.is_terminal:
                stderr.print(f"{len(compactions)} tasks over {inputs} fragments")

        report = compact(store, log, runner, chosen, full=full, on_pass=announce)
    _print_result(report, as_json=as_json)


def _runner(master: str | None) -> Runner:
    if master == IN_PROCESS:
        return run_in_process
    return SparkRunner(
        open_session("local[*]" if master is None and not is_submitted() else master)
    )


def _print_result(report: CompactReport, *, as_json: bool) -> None:
    if as_json:
        echo_json(report.to_json())
        return
    if report.tasks == 0:
        click.echo(f"nothing to compact at version {report.version}: no fragments overlap")
        return
    figures = report.to_json()
    seconds = max(report.seconds, 1e-9)
    click.echo(
        f"{figures['input_fragments']} fragments into {figures['output_fragments']} by "
        f"{figures['tasks']} tasks, {figures['rows_in']:,} rows, "
        f"{human_bytes(figures['bytes_in'])} to {human_bytes(figures['bytes_out'])}, "
        f"{figures['gets']} GETs ({figures['resumed_gets']} resumed), "
        f"peak {human_bytes(figures['peak_rss_bytes'])} RSS, {seconds:.1f} s; "
        f"version {figures['version']}"
    )
