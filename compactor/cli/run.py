"""Implements `run`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from compactor.cli.display import print_table
from compactor.cli.frugal import import_functions
from compactor.cli.output import echo_json, warn
from compactor.cli.spark_options import IN_PROCESS, is_on_spark, shuffle_options
from compactor.cli.telemetry import MetricsTargets, log_options, metrics_options, telemetry
from compactor.common.counts import counted
from compactor.errors import UsageError
from compactor.files.places import STREAM
from compactor.pipelines.config import Merge, Output, Pipeline, load_pipeline
from compactor.pipelines.phases import check_pipeline, run_pipeline

if TYPE_CHECKING:
    from compactor.pipelines.run_report import RunReport
    from compactor.telemetry.metrics.catalog import Change

import_functions()  # each run calls some

_EPILOG = """\b
Examples:
  compactor run errors.yaml --check                   opens all files, and runs nothing
  compactor run errors.yaml --explain
  compactor run errors.yaml
  compactor run errors.yaml --explain --format dot | dot -Tsvg > errors.svg
  compactor run errors.yaml --master 'local[2]'       as Spark stages

\b
A pipeline is a YAML file of nodes by name: source, transform, merge, route, sort, aggregate, combine,
output. Its relative paths begin at its folder; ${NAME} in its texts comes from the environment.
docs/reference/pipelines.md has all settings. The exit code is 2 if bad records were put aside."""


@click.command("run", epilog=_EPILOG)
@click.argument("pipeline", metavar="PIPELINE.YAML")
@click.option(
    "--explain",
    "explains",
    is_flag=True,
    help="Check the pipeline, show how each node buffers rows, and run nothing.",
)
@click.option(
    "--check",
    "checks",
    is_flag=True,
    help="Do all but the run: open the sources, bind all nodes, find wrong settings.",
)
@click.option("--format", "shape", type=click.Choice(["text", "json", "dot"]), default="text",
              show_default=True, help="Output format of --explain.")  # fmt: skip
@click.option(
    "--master",
    help="Spark master such as local[2]: a node that needs rows of all tasks begins a stage. "
    f"{IN_PROCESS}: no Spark.  [default: {IN_PROCESS}, or that of spark-submit]",
)
@shuffle_options("rows of files wait to be written")
@log_options
@metrics_options
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object on stdout after the run; not with --check and --explain.",
)
def run_command(
    pipeline: str,
    explains: bool,
    checks: bool,
    shape: str,
    master: str | None,
    staging: str | None,
    shuffle_partitions: int | None,
    as_json: bool,
    targets: MetricsTargets,
) -> None:
    """Run the pipeline of a YAML file, in bounded memory: in this process, or as Spark stages."""
    on_spark = is_on_spark(master, staging, shuffle_partitions)
    loaded = load_pipeline(pipeline)
    for name, node in loaded.nodes.items():
        for warning in node.entity.warnings if isinstance(node, Merge) and node.entity else ():
            warn(f"{pipeline}: node {name!r}: entity: {warning}")
    if explains and checks:
        raise UsageError("--check: leave it out, since --explain checks too")
    if shape != "text" and not explains:
        raise UsageError("--format: give it with --explain")
    if as_json and (explains or checks):
        raise UsageError("--json: leave it out, since nothing runs; --explain takes --format json")
    with loaded.variables.hidden():
        if explains or checks:
            check_pipeline(loaded)
            if explains:
                _explain(loaded, shape, on_spark=on_spark)
            return
        with telemetry("run", pipeline, targets) as told:
            report = _run(loaded, master, staging, shuffle_partitions, on_spark=on_spark)
            told.record(lambda label: _changes(label, report), pipeline)
            _print_report(report, as_json=as_json, err=_prints_rows(loaded))
    if report.dlq_count:
        click.get_current_context().exit(2)


def _changes(label: str, report: RunReport) -> list[Change]:
    from compactor.telemetry.metrics.mapping import of_pipeline

    return of_pipeline(label, report)


def _run(
    pipeline: Pipeline,
    master: str | None,
    staging: str | None,
    shuffle_partitions: int | None,
    *,
    on_spark: bool,
) -> RunReport:
    if not on_spark:
        return run_pipeline(pipeline)
    from compactor.cli.spark_start import start_spark
    from compactor.pipelines.on_spark import SparkRun
    from compactor.spark.session import SparkOptions

    # Reports mistakes in the file before Spark takes seconds to start.
    run = SparkRun(pipeline)
    return run.run(start_spark(master), SparkOptions(staging, shuffle_partitions))


def _explain(pipeline: Pipeline, shape: str, *, on_spark: bool) -> None:
    from compactor.pipelines import explain

    if shape == "json":
        click.echo(explain.as_json(pipeline, on_spark=on_spark))
    elif shape == "dot":
        click.echo(explain.as_dot(pipeline, on_spark=on_spark))
    elif on_spark:
        columns = [("stage", True), ("nodes", False), ("takes from", False), ("shuffle", False)]
        print_table(None, columns, explain.rows_of_stages(pipeline))
    else:
        columns = [(name, False) for name in ("node", "kind", "inputs", "buffer", "form", "why")]
        print_table(None, columns, explain.rows_of(pipeline))


def _prints_rows(pipeline: Pipeline) -> bool:
    """Returns whether rows go to standard output, so that nothing else may."""
    return any(isinstance(n, Output) and n.path == STREAM for n in pipeline.nodes.values())


def _print_report(report: RunReport, *, as_json: bool, err: bool) -> None:
    if as_json:
        echo_json(report.to_json(), err=err)
    else:
        read = sum(report.records_read.values())
        rate = read / max(1e-9, report.seconds)
        for name, output in report.outputs.items():
            live = ", written live" if output.live else ""
            click.echo(f"{name}: {counted(output.records_written, 'record')}{live}", err=err)
        spilled = f", {counted(report.spills, 'spill')}" if report.spills else ""
        aside = f", {counted(report.dlq_count, 'bad one')} put aside" if report.dlq_count else ""
        timeless = sum(report.records_without_time.values())
        aside += f", {timeless:,} without a time in no window" if timeless else ""
        again = ", read again for a wider type" if report.restarts else ""
        click.echo(
            f"{counted(read, 'record')} read, {rate:,.0f}/s{again}{spilled}{aside}, {report.seconds:.1f} s "
            f"({_stages(report)})",
            err=err,
        )


def _stages(report: RunReport) -> str:
    """Returns the seconds of each stage of the run, summed over nodes and threads."""
    return ", ".join(
        f"{stage.replace('_', ' ')} {sum(of_nodes.values()):.1f} s"
        for stage, of_nodes in report.stage_seconds.items()
    )
