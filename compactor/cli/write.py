"""Implements `ingest`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from compactor.cli.csv_options import csv_options
from compactor.cli.display import progress
from compactor.cli.output import echo_json, echo_line, human_bytes, warn
from compactor.cli.properties import say_overrides
from compactor.cli.setting_options import chosen, setting_options
from compactor.cli.shared_options import check_condition, column_name
from compactor.cli.tables import address_of
from compactor.cli.telemetry import MetricsTargets, log_options, metrics_options, telemetry
from compactor.common.counts import counted
from compactor.common.foreign import shown_path
from compactor.common.message import Message
from compactor.common.setting_keys import PROMOTE
from compactor.errors import (
    CompactorError,
    InputError,
    JobError,
    UnknownOutcomeError,
    UsageError,
    message_of,
)
from compactor.files.places import STREAM, check_local, exists
from compactor.files.problems import one_line
from compactor.files.text_options import TextOptions
from compactor.settings.properties import told_by
from compactor.telemetry.metrics import mapping
from compactor.write.ingest import Adding, ByteProgress, FilesIngest, IngestReport, OnFile
from compactor.write.ingest.rejects import DEFAULT_MAX_REJECTS, Rejects
from compactor.write.ingest.settings import IngestSettings
from lsm_fragment.errors import FormatError
from lsm_fragment.keys.sort_schema import sort_text

_INGEST_EPILOG = """\b
Examples:
  compactor ingest ./logs app.ndjson --sort-by service,host,timestamp:desc
  compactor ingest s3://bucket/logs part-*.parquet --one-commit
  compactor ingest ./logs big.csv.gz --rows-per-fragment 250000
  compactor ingest ./logs app.ndjson --rejects bad.ndjson --max-rejects 100
  compactor ingest ./sales sales.csv --delimiter ';' --decimal , --encoding cp1252 --sort-by id
  compactor ingest ./users users.ndjson --sort-by id --row-policy last --sequence updated_at
  compactor ingest ./visits monday.parquet --overwrite --where "day = '2026-11-23'"

\b
--sort-by: columns, most significant first; add :desc or :nulls_first to a column, as in ts:desc:nulls_first
(default: ascending, nulls last). It creates the table and is needed only then; a Parquet or Arrow file that
states its order can replace it. In all options, put a column name with a comma, colon or quote in double
quotes, and double a quote in it: --sort-by '"a,b":desc,c'.
--row-policy: append keeps all rows. last and first keep one row of equal --sort-by, the newest or oldest by
--sequence and ingestion. partial-update keeps the newest non-null value of each column. aggregate combines
each column by its function: sum count min max last first bool_or bool_and list set.
--overwrite: `compactor delete TABLE --where CONDITION --dry-run` counts the rows that it would replace.
Files: .parquet .arrow .ndjson .jsonl .json .csv; text also .gz .zst .bz2 .xz. Rows need not be sorted."""


@click.command("ingest", epilog=_INGEST_EPILOG)
@click.argument("table")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@setting_options(IngestSettings)
@click.option("--promote", "promotes", multiple=True, type=column_name, metavar="COLUMN",
              help="Turn a map or struct column into one column for each key, COLUMN.KEY.")  # fmt: skip
@csv_options
@click.option("--one-commit", is_flag=True,
              help="Add all files in one commit: all of their rows appear at once, or none do.")  # fmt: skip
@click.option(
    "--overwrite",
    is_flag=True,
    help="Replace all rows of the table, or those of --where, by the rows of the files.",
)
@click.option(
    "--where",
    metavar="CONDITION",
    help="With --overwrite: replace only rows that match it; all new rows have to match.",
)
@click.option(
    "--upsert",
    is_flag=True,
    help="Refuse a table whose row policy lets no row take the place of another.",
)
@click.option("--rejects", "rejects_path", metavar="FILE",
              help="Put rows of text files that can't be taken there, after those of earlier runs, one "
              "JSON object for each: file, row, reason, text. Otherwise the first one ends the "
              "ingest.")  # fmt: skip
@click.option("--max-rejects", type=click.IntRange(min=0), metavar="ROWS",
              help=f"More of them end the ingest.  [default: {DEFAULT_MAX_REJECTS}]")  # fmt: skip
@log_options
@metrics_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def ingest_command(
    table: str,
    files: tuple[str, ...],
    promotes: tuple[str, ...],
    text: TextOptions,
    one_commit: bool,
    overwrite: bool,
    where: str | None,
    upsert: bool,
    rejects_path: str | None,
    max_rejects: int | None,
    as_json: bool,
    targets: MetricsTargets,
    **given: Any,
) -> None:
    """Add FILEs to TABLE as sorted level-0 fragments; creates TABLE if needed.

    All rows of a file appear at once, or none do. Small files share fragments and a commit; with --one-commit
    all files share one commit. With --overwrite one commit also removes the rows that the new ones replace.
    """
    adding = _adding(overwrite=overwrite, where=where, upsert=upsert)
    rejects = _rejects(rejects_path, max_rejects, files)
    settings = chosen(IngestSettings, given)
    sort, options = settings.sort, replace(settings.options, promotes=promotes, text=text)
    told = options.told
    reports: list[IngestReport] = []
    with (
        telemetry("ingest", address_of(table), targets) as telling,
        _saying_that_rows_stay(reports),
    ):
        for path in files:
            check_input(path)
        log = telling.open_log(table)
        if told:
            say_overrides(log.refresh().properties, *told_by(told), named=str)
        with (
            FilesIngest(
                log.store,
                log,
                sort,
                options,
                skips_empty=len(files) > 1,
                adding=adding,
                rejects=rejects,
            ) as ingest,
            _saying_what_was_added(files, reports, in_one_commit=one_commit or adding.is_whole),
        ):
            for report in ingest.add(files, _progress_over(files), in_one_commit=one_commit):
                reports.append(report)
                for name in report.not_promoted:
                    why = f": {report.path} has no column {name!r}; nothing was promoted"
                    warn(Message(PROMOTE, why))
                telling.record(partial(mapping.of_ingest, report=report), log.store.url)
                if not as_json:
                    echo_line(
                        f"{report.path}: {counted(report.rows, 'row')}{_superseded(report)} in "
                        f"{counted(report.fragments, 'fragment')}, "
                        f"{human_bytes(report.bytes_written)}, version {report.version}{_taken_sort(report)}"
                    )
        if rejects:
            warn(
                f"{counted(len(rejects), 'row')} could not be taken: {rejects.path} has them, with reasons"
            )
        if overwrite and not as_json:
            echo_line(f"{counted(adding.replaced_rows, 'row')} replaced")
        if as_json:
            echo_json(
                {
                    "version": reports[-1].version,
                    "replaced_rows": adding.replaced_rows,
                    "files": _files_in(reports),
                    "rows": sum(report.rows for report in reports),
                    "superseded_rows": sum(report.superseded_rows for report in reports),
                    "fragments": sum(report.fragments for report in reports),
                    "bytes_written": sum(report.bytes_written for report in reports),
                    "rejected_rows": 0 if rejects is None else len(rejects),
                    "sort_of_file": sort_text(reports[0].sort_of_file),
                }
            )


def _adding(*, overwrite: bool, where: str | None, upsert: bool) -> Adding:
    """Returns how the rows join the table. Raises `UsageError` for options that contradict each other."""
    if where is not None and not overwrite:
        raise UsageError("--where: it names the rows that --overwrite replaces; give both")
    if where is not None:
        check_condition(where, "leave it out to replace all rows")
    if overwrite and upsert:
        raise UsageError("--overwrite and --upsert: give one of them")
    # Imported here, since plain ingests need neither.
    if overwrite:
        from compactor.write.overwrite import Overwrite

        return Overwrite(where)
    if upsert:
        from compactor.write.upsert import Upsert

        return Upsert()
    return Adding()


def _rejects(path: str | None, limit: int | None, files: Sequence[str]) -> Rejects | None:
    """Returns where rejected rows go. Raises `UsageError` for options that contradict each other."""
    if path is None:
        if limit is not None:
            raise UsageError("--max-rejects: name a file by --rejects too")
        return None
    if os.path.realpath(path) in map(os.path.realpath, files):
        raise UsageError(f"--rejects {path}: is a file to ingest: name another")
    return Rejects(path, DEFAULT_MAX_REJECTS if limit is None else limit)


def _progress_over(files: Sequence[str]) -> OnFile:
    """Returns what an ingest enters with each file: it shows how many bytes of all files are read."""
    before, total = {}, 0
    for path in files:
        before[path] = total
        total += Path(path).stat().st_size

    @contextmanager
    def on_file(path: str) -> Iterator[ByteProgress]:
        begun = before[path]
        with progress(f"ingest {Path(path).name}", total, begun) as advance:
            yield lambda done, _bytes_of_file: advance(begun + done)

    return on_file


@contextmanager
def _saying_that_rows_stay(reports: Sequence[IngestReport]) -> Iterator[None]:
    """Turns an error of the output, after which a user might ingest files twice, into one that tells of them.

    reports: of the files added so far.
    """
    try:
        yield
    except OSError as error:  # Stores and files wrap their own.
        if not reports:
            raise
        added = counted(_files_in(reports), "file")
        raise JobError(
            f"cannot write the output ({error.strerror or one_line(error)}), but the rows of {added} are in "
            f"the table, version {reports[-1].version}: do not ingest them again"
        ) from error


@contextmanager
def _saying_what_was_added(
    files: Sequence[str], reports: Sequence[IngestReport], *, in_one_commit: bool
) -> Iterator[None]:
    """Adds to an error which files are in the table. reports: of the files added so far."""
    try:
        yield
    except (CompactorError, FormatError) as error:
        text = ""
        if reports:
            files_before = _files_in(reports)
            before = counted(files_before, "file before is", "files before are")
            text = f" (the {before} in the table, version {reports[-1].version})"
        elif in_one_commit and len(files) > 1 and not isinstance(error, UnknownOutcomeError):
            text = " (none of the files was added)"
        if text:
            error.args = (Message(message_of(error), text),)
        raise


def _files_in(reports: Sequence[IngestReport]) -> int:
    return sum(len(report.paths) for report in reports)


def _superseded(report: IngestReport) -> str:
    rows = report.superseded_rows
    return f" ({rows:,} merged into others of their key)" if rows else ""


def _taken_sort(report: IngestReport) -> str:
    taken = sort_text(report.sort_of_file)
    return f"; the table is sorted by {taken}, as the file says it is" if taken else ""


def check_input(path: str) -> None:
    """Checks that the path is a file, before any file is read. Raises `InputError`, and `UsageError` for an
    address."""
    check_local(path)
    if path != STREAM and not exists(path):
        raise InputError(f"{shown_path(path)}: no such file; nothing was ingested")
    if Path(path).is_dir():
        raise InputError(f"{path}: a folder; nothing was ingested: name its files")
    if path == STREAM or not Path(path).is_file():
        raise InputError(
            f"{path}: not a regular file, and an ingest reads files twice; nothing was ingested: save the "
            "rows as a file, or let a pipeline (`compactor run`) read them"
        )
