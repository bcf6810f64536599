"""Implements `run`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from compactor.cli.display import print_table
from compactor.cli.output import echo_json, warn
from compactor.cli.spark_options import IN_PROCESS, is_on_spark, shuffle_options
from compactor.cli.telemetry import MetricsTargets, log_options, metrics_options, telemetry
from compactor.common.counts import counted
from compactor.errors import UsageError
from compactor.pipelines.config import Merge, Pipeline, load_pipeline
from compactor.spark.session import open_session
from compactor.telemetry.metrics import mapping

if TYPE_CHECKING:
    from compactor.pipelines.run_report import RunReport

_EPILOG = """\b
Examples:
  compactor run errors.yaml --explain
  compactor run errors.yaml
  compactor run errors.yaml --explain --format dot | dot -Tsvg > errors.svg
  compactor run errors.yaml --master 'local[2]'       as Spark stages

\b
A pipeline is a YAML file of nodes by name: source, transform, merge, route, sort, aggregate, combine,
output. docs/reference/pipelines.md has all settings. The exit code is 2 if bad records were put aside."""


@click.command("run", epilog=_EPILOG)
@click.argument("pipeline", metavar="PIPELINE.YAML")
@click.option(
    "--explain", "explains", is_flag=True, help="Show how each node buffers rows, and run nothing."
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
    "--json", "as_json", is_flag=True, help="Print one JSON object on stdout after the run."
)
def run_command(
    pipeline: str,
    explains: bool,
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
    if explains:
        _explain(loaded, shape, on_spark=on_spark)
        return
    if shape != "text":
        raise UsageError("--format: give it with --explain")
    with telemetry("run", pipeline, targets) as told:
        # Imported here, since --explain does not need it.
        if on_spark:
            from compactor.pipelines.on_spark import SparkRun
            from compactor.spark.session import SparkOptions

            # Reports mistakes in the file before Spark takes seconds to start.
            run = SparkRun(loaded)
            report = run.run(open_session(master), SparkOptions(staging, shuffle_partitions))
        else:
            from compactor.pipelines.phases import run_pipeline

            report = run_pipeline(loaded)
        told.record(lambda label: mapping.of_pipeline(label, report), pipeline)
        _print_report(report, as_json=as_json)
        if report.dlq_count:
            click.get_current_context().exit(2)


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


def _print_report(report: RunReport, *, as_json: bool) -> None:
    if as_json:
        echo_json(report.to_json())
    else:
        read = sum(report.records_read.values())
        rate = read / max(1e-9, report.seconds)
        for name, output in report.outputs.items():
            live = ", written live" if output.live else ""
            click.echo(f"{name}: {counted(output.records_written, 'record')}{live}")
        spilled = f", {counted(report.spills, 'spill')}" if report.spills else ""
        aside = f", {counted(report.dlq_count, 'bad one')} put aside" if report.dlq_count else ""
        timeless = sum(report.records_without_time.values())
        aside += f", {timeless:,} without a time in no window" if timeless else ""
        click.echo(
            f"{counted(read, 'record')} read, {rate:,.0f}/s{spilled}{aside}, {report.seconds:.1f} s "
            f"({_stages(report)})"
        )


def _stages(report: RunReport) -> str:
    """Returns the seconds of each stage of the run, summed over nodes and threads."""
    return ", ".join(
        f"{stage.replace('_', ' ')} {sum(of_nodes.values()):.1f} s"
        for stage, of_nodes in report.stage_seconds.items()
    )
