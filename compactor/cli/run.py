"""`run`."""

from __future__ import annotations

import click

from compactor.cli.output import echo_json, print_table
from compactor.errors import UsageError
from compactor.pipeline import explain
from compactor.pipeline.config import load_pipeline

_EPILOG = """\b
Examples:
  compactor run errors.yaml --explain
  compactor run errors.yaml
  compactor run errors.yaml --explain --format dot | dot -Tsvg > errors.svg

\b
A pipeline is a YAML file of nodes by name: source, transform, merge, route, sort, aggregate, combine,
output. docs/pipelines.md has all settings. Exit code 2 if bad records were put aside."""


@click.command("run", epilog=_EPILOG)
@click.argument("pipeline", metavar="PIPELINE.YAML")
@click.option(
    "--explain", "explains", is_flag=True, help="Show how each node holds rows; run nothing."
)
@click.option("--format", "shape", type=click.Choice(["text", "json", "dot"]), default="text",
              show_default=True, help="Of what --explain shows.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, after the run.")
def run_command(pipeline: str, explains: bool, shape: str, as_json: bool) -> None:
    """Run the pipeline of a YAML file, in bounded memory, in this process."""
    loaded = load_pipeline(pipeline)
    if explains:
        if shape == "json":
            click.echo(explain.as_json(loaded))
        elif shape == "dot":
            click.echo(explain.as_dot(loaded))
        else:
            columns = [
                (name, False) for name in ("node", "kind", "inputs", "buffer", "form", "why")
            ]
            print_table(None, columns, explain.rows_of(loaded))
        return
    if shape != "text":
        raise UsageError("--format: goes with --explain")
    # Imported late: what only explains needs none of it.
    from compactor.pipeline.phases import run_pipeline

    report = run_pipeline(loaded)
    if as_json:
        echo_json(report.to_json())
    else:
        read = sum(report.records_read.values())
        rate = read / max(1e-9, report.seconds)
        for name, output in report.outputs.items():
            live = ", written live" if output.live else ""
            click.echo(f"{name}: {output.records_written:,} records{live}")
        spilled = f", {report.spills:,} spills" if report.spills else ""
        aside = f", {report.dlq_count:,} bad ones put aside" if report.dlq_count else ""
        timeless = sum(report.records_without_time.values())
        aside += f", {timeless:,} without a time in no window" if timeless else ""
        click.echo(f"{read:,} records read, {rate:,.0f}/s{spilled}{aside}, {report.seconds:.1f} s")
    if report.dlq_count:
        click.get_current_context().exit(2)
