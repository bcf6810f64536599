"""Implements `entity-merge`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import click
import pyarrow as pa

from compactor.cli.display import status
from compactor.cli.entity_links import asked_of, check_only_explains, print_explanation
from compactor.cli.output import echo_json, tell, warn
from compactor.cli.shared_options import duration_seconds, size_bytes
from compactor.cli.spark_options import IN_PROCESS, is_on_spark, shuffle_options
from compactor.cli.spark_start import start_spark
from compactor.cli.tables import open_log
from compactor.cli.telemetry import MetricsTargets, log_options, metrics_options, telemetry
from compactor.common.escaping import one_line
from compactor.entities.datasets import check_not_over
from compactor.entities.entity_json import entity_lines
from compactor.entities.entity_merge import EntityMerge
from compactor.entities.entity_report import EntityMergeReport
from compactor.entities.explain import Explanation, check_explained
from compactor.entities.links import LINKS
from compactor.entities.memory import DEFAULT_MEMORY_BYTES, DEFAULT_TASK_MEMORY_BYTES
from compactor.entities.output import changes_since
from compactor.entities.run import EntityRun
from compactor.entities.spec import load_spec
from compactor.errors import UsageError
from compactor.files.names import FileFormat, kind_of
from compactor.files.write import SinkOptions, check_sink_path, write_batches
from compactor.settings.paths import identity
from compactor.settings.units import size_text
from compactor.telemetry.metrics import mapping

if TYPE_CHECKING:
    from compactor.entities.on_spark import OnLinks

_EPILOG = """\b
Examples:
  compactor entity-merge customers.yaml --output ./customers
  compactor entity-merge customers.yaml --output ./customers --dry-run
  compactor entity-merge customers.yaml --output ./customers --ndjson all.ndjson
  compactor entity-merge customers.yaml --output ./customers --ndjson - --since 41
  compactor entity-merge customers.yaml --explain c17 s4                            what ties them
  compactor entity-merge customers.yaml --output ./customers --master 'local[2]'    on Spark

\b
customers.yaml:
  version: 2
  datasets: [crm c, shop s]
  equality:
    - [eq, c.email, [lower, s.mail]]
docs/reference/entity-merge.md has all settings. A dataset is a file or table of its name in the folder
--datasets, or the source that `sources` in the spec gives."""

_NOT_POPULATED: Final = 7
"""Exit code of a run that did nothing, because it waits for datasets."""


def _retention_seconds(given: str) -> float:
    return math.inf if given == "forever" else duration_seconds(given, min_seconds=1)


@click.command("entity-merge", epilog=_EPILOG)
@click.argument("spec", metavar="SPEC.YAML")
@click.argument("other", metavar="[ID]", required=False)
@click.option("--output", "table", metavar="TABLE", help="Table of the merged entities.")
@click.option("--datasets", "folder", metavar="DIR", default=".", show_default=True,
              help="Folder of the datasets for which the spec has no source.")  # fmt: skip
@click.option("--full", is_flag=True, help="Write every entity again, changed or not.")
@click.option("--allow-changes", is_flag=True,
              help="Allow that a dataset is gone, and that any share of the table's entities is replaced or "
              "deleted.")  # fmt: skip
@click.option("--tombstone-retention", "tombstone_retention_seconds", metavar="DURATION",
              type=_retention_seconds,
              help="Let compactions remove replaced ids that are older, such as 30d, or keep all (forever). "
              "The table remembers it.  [default: as the table has it, at first forever]")  # fmt: skip
@click.option("--dry-run", is_flag=True,
              help="Report what would be written, and write nothing. Without Spark the report has the "
              "largest changes.")  # fmt: skip
@click.option("--explain", "explained", metavar="ID",
              help="Print the rules and values that tie this entity to the others of its cluster, or to a "
              "second ID; write nothing.")  # fmt: skip
@click.option("--edges", metavar="FILE",
              help="Write the links of all rules (.ndjson, .csv, .parquet, ...).")  # fmt: skip
@click.option("--ndjson", "lines", metavar="FILE",
              help="Then write the table's entities as NDJSON (- is stdout); with --dry-run, those that "
              "would be written.")  # fmt: skip
@click.option("--since", type=click.IntRange(-1, (1 << 63) - 1), metavar="N",
              help="With --ndjson: only entities with a greater _updated, oldest first.")  # fmt: skip
@click.option(
    "--memory-limit",
    "memory_limit_bytes",
    type=size_bytes,
    metavar="SIZE",
    help="Memory of the merge (on Spark, of each task); a merge that needs more is refused.  "
    f"[default: {size_text(DEFAULT_MEMORY_BYTES)}, on Spark {size_text(DEFAULT_TASK_MEMORY_BYTES)}]",
)
@click.option(
    "--master",
    help="Spark master such as local[2]: merge in many tasks what one process cannot hold. "
    f"{IN_PROCESS}: no Spark.  [default: {IN_PROCESS}, or that of spark-submit]",
)
@shuffle_options("entities wait to be merged")
@log_options
@metrics_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def entity_merge_command(
    spec: str,
    other: str | None,
    table: str | None,
    folder: str,
    full: bool,
    allow_changes: bool,
    tombstone_retention_seconds: float | None,
    dry_run: bool,
    explained: str | None,
    edges: str | None,
    lines: str | None,
    since: int | None,
    memory_limit_bytes: int | None,
    master: str | None,
    staging: str | None,
    shuffle_partitions: int | None,
    as_json: bool,
    targets: MetricsTargets,
) -> None:
    """Find entities of several datasets that are the same, and merge them into TABLE.

    One commit writes only what changed since the last run, and there is no commit if nothing changed.
    The exit code is 7 if nothing was done, because the merge waits for datasets that its spec requires.
    """
    asked = asked_of(explained, other)
    if asked:
        check_only_explains(
            {
                "--edges": edges,
                "--ndjson": lines,
                "--since": since,
                "--full": full,
                "--dry-run": dry_run,
                "--allow-changes": allow_changes,
                "--tombstone-retention": tombstone_retention_seconds,
            }
        )
    elif table is None and not dry_run:
        raise UsageError("--output: name the table to write, or give --dry-run")
    _check_files(lines, since, edges, dry_run=dry_run, as_json=as_json)
    on_spark = is_on_spark(master, staging, shuffle_partitions)
    if on_spark and dry_run and lines is not None:
        raise UsageError("--ndjson: leave out --dry-run or --master")
    loaded = load_spec(spec)
    for warning in loaded.warnings:
        warn(f"{spec}: {warning}")
    log = None if table is None else open_log(table)
    store = None if log is None else log.store
    outputs = {
        option: path
        for option, path in (("--ndjson", lines), ("--edges", edges))
        if path is not None and path != "-"
    }
    for option, path in outputs.items():
        if identity(path) == identity(spec):
            raise UsageError(f"{option}: {path} is the spec itself; name another file")
    check_not_over(loaded, folder, outputs)
    rows: Iterable[pa.RecordBatch] | None = None
    of = spec if store is None else store.url
    with (
        suppress(click.exceptions.Exit),
        telemetry("entity-merge", of, targets) as told,
        status("entity-merge") as changed,
    ):

        def show(what: str) -> None:
            changed(f"entity-merge: {what}")

        limit = memory_limit_bytes or (None if on_spark else DEFAULT_MEMORY_BYTES)
        run = EntityRun(
            spec=loaded,
            store=store,
            folder=folder,
            full=full,
            allow_changes=allow_changes,
            tombstone_retention_seconds=tombstone_retention_seconds,
            memory_limit_bytes=limit,
            on_progress=show,
        )
        on_links = None if edges is None else partial(write_batches, edges, LINKS)
        if asked:
            only = replace(run, store=None)
            if on_spark:
                engine = _OnSpark(only, master, staging, shuffle_partitions)
                explanation = engine.explain(asked)
            else:
                explanation = EntityMerge(only).explain(asked)
        elif on_spark:
            engine = _OnSpark(run, master, staging, shuffle_partitions)
            report = engine.run(on_links, dry_run=dry_run)
        else:
            merge = EntityMerge(run)
            if dry_run:
                report, rows = merge.look()
            else:
                report = merge.run()
        if not asked:
            told.record(lambda label: mapping.of_entity_merge(label, report), of)
            if report.waiting_for:
                raise click.exceptions.Exit(_NOT_POPULATED)  # metrics do not count it as a success
        if on_links is not None and not on_spark:
            on_links(merge.links())
    if asked:
        print_explanation(explanation, as_json=as_json)
        return
    for warning in report.warnings:
        warn(f"{spec}: {warning}")
    if as_json:
        warnings = [*loaded.warnings, *report.warnings]
        echo_json({**report.to_json(), "warnings": warnings, "dry_run": dry_run})
    else:
        _print(report, dry_run=dry_run, err=lines == "-")
    if report.waiting_for:
        click.get_current_context().exit(_NOT_POPULATED)
    if lines is None:
        return
    if not dry_run and log is not None and report.version:
        rows = changes_since(log.store, log.current(), since)
    _write_lines(lines, rows or ())


class _OnSpark:
    """A merge on Spark, which the command imports only here."""

    def __init__(
        self, run: EntityRun, master: str | None, staging: str | None, partitions: int | None
    ) -> None:
        from compactor.entities.on_spark import SparkEntityMerge
        from compactor.spark.session import SparkOptions

        # Reports mistakes in the spec before Spark takes seconds to start.
        self._merge, self._master = SparkEntityMerge(run), master
        self._options = SparkOptions(staging, partitions)

    def run(self, on_links: OnLinks | None, *, dry_run: bool) -> EntityMergeReport:
        merge = self._merge
        if merge.report.waiting_for:
            return merge.report
        return merge.run(start_spark(self._master), self._options, on_links, dry_run=dry_run)

    def explain(self, asked: tuple[str, ...]) -> Explanation:
        check_explained(self._merge.report)
        return self._merge.explain(asked, start_spark(self._master), self._options)


def _check_files(
    lines: str | None, since: int | None, edges: str | None, *, dry_run: bool, as_json: bool
) -> None:
    """Raises `UsageError` for files that can't be written, and options that don't go with them."""
    if since is not None and (lines is None or dry_run):
        raise UsageError("--since: goes with --ndjson, and not with --dry-run")
    if lines == "-" and as_json:
        raise UsageError("--json: leave it out with --ndjson -, which also writes to stdout")
    if lines is not None and lines != "-":
        kind = kind_of(lines)
        if kind is None or kind.format is not FileFormat.NDJSON:
            raise UsageError(f"--ndjson: {lines}: name a file that ends in .ndjson, or -")
        check_sink_path(lines)
    if edges is not None:
        check_sink_path(edges)
        if lines not in {None, "-"} and identity(edges) == identity(str(lines)):
            raise UsageError(f"--edges: {edges} is the file of --ndjson too: name another file")


def _print(report: EntityMergeReport, *, dry_run: bool, err: bool) -> None:
    say: Callable[[str], None] = tell if err else click.echo
    if report.waiting_for:
        names = ", ".join(report.waiting_for)
        say(
            f"not populated: waiting for {names}, nothing was written; run again when it is there, or say "
            "ignore_non_existent_datasets: true"
        )
        return
    if report.missing_datasets:
        say(f"missing, and taken as empty: {', '.join(report.missing_datasets)}")
    done = "to write" if dry_run else "written"
    say(f"{report.summary} {done}, {report.unchanged:,} as they were; version {report.version}")
    for line in report.lines():
        say(one_line(line))


def _write_lines(path: str, batches: Iterable[pa.RecordBatch]) -> None:
    if path == "-":
        for batch in batches:
            click.echo(entity_lines(batch).decode(), nl=False)
        return
    write_batches(path, pa.schema([]), batches, SinkOptions(render=entity_lines))
