"""Implements `simulate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from compactor.cli.display import print_table, progress
from compactor.cli.output import echo_json, human_bytes
from compactor.cli.properties import say_overrides
from compactor.cli.setting_options import chosen, setting_option, setting_options
from compactor.cli.tables import open_log
from compactor.common.counts import counted
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.settings.properties import tuned
from compactor.simulate.plot import check_plot, plot
from compactor.simulate.result import Result, ShardSample, worker_use, write_amplification
from compactor.simulate.settings import SimulationSettings
from compactor.simulate.simulation import Simulation

_POINTS: Final = 12
_EPILOG = """\b
Examples:
  compactor simulate                                          10 GiB/s for two weeks, as the defaults do it
  compactor simulate --strategy leveled --strategy tiered --plot both.png
  compactor simulate ./logs --level0-trigger-runs 16         with the properties of a table, but one
  compactor simulate --ingest 20MiB/s --duration 3d --workers 4
  compactor simulate --time-window 1d --retention 7d --late 0.02
  compactor simulate --locality random:0.01 --level-multiplier 8 --json

The real planner decides; only the fragments are synthetic. The bytes of a flush are spread evenly over its
keys, and a merge writes as much as it reads, at the speed of --task-bytes-per-second. Writers never wait,
however high the debt; once level 0 has ten times the runs that should stop them, the simulation ends early.

\b
runs at 0   sorted runs at level 0, in the time window that has the most
WA          write amplification: bytes written per byte ingested, the flush included; in total, and since the
            previous line
reads       read amplification: sorted runs that a read of one random key has to search
debt        from 0.5 writers should slow down, from 1 they should wait
busy        fraction of the workers' time since the previous line"""


@click.command("simulate", epilog=_EPILOG)
@click.argument("table", required=False)
@setting_options(SimulationSettings)
@click.option("--strategy", "strategies", multiple=True, type=click.Choice([str(s) for s in Strategy]),
              help="Strategy to simulate; several are compared.  [default: the table's, else "
              f"{Policy().strategy}]")  # fmt: skip
@setting_options(Policy, without=("strategy",))
@setting_option(CompactionSettings, "target_fragment_bytes")
@click.option(
    "--plot", "plot_path", metavar="FILE", help="Also draw a picture: .png, .svg or .pdf."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def simulate_command(
    table: str | None,
    strategies: tuple[str, ...],
    plot_path: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Try a policy on a synthetic ingest with the real planner: weeks in minutes, without data.

    The properties of TABLE are the policy, if it is given, and options override them. Its rows are not read.
    Shows how fragments, levels, write and read amplification and compaction debt develop, and whether the
    workers keep up.
    """
    if plot_path is not None:
        check_plot(plot_path)
    settings = chosen(SimulationSettings, options)
    properties = () if table is None else open_log(table).current().properties
    told = chosen(Policy, options), chosen(CompactionSettings, options)
    say_overrides(properties, *told)
    policy, compaction = tuned(told[0], properties), tuned(told[1], properties)
    policies = {
        name: tuned(chosen(Policy, {**options, "strategy": name}), properties)
        for name in dict.fromkeys(strategies or (str(policy.strategy),))
    }
    if not as_json:
        click.echo(_describe(settings))
    results: dict[str, Result] = {}
    for name, when in policies.items():
        with progress(f"simulate {name}", 1000) as advance:
            results[name] = Simulation(settings, when, compaction).run(
                lambda share: advance(round(share * 1000))
            )
        if not as_json:
            click.echo("")
            _print_points(name, results[name])
    if as_json:
        echo_json({name: result.to_json() for name, result in results.items()})
    else:
        click.echo("")
        _print_summary(results)
    if plot_path is not None:
        plot(results, _describe(settings), plot_path)


def _describe(settings: SimulationSettings) -> str:
    windows = "no time windows"
    if settings.window_seconds is not None:
        kept = settings.retention_seconds
        windows = f"time windows of {_duration(settings.window_seconds)} kept "
        windows += "for ever" if kept is None else f"for {_duration(kept)}"
        if settings.late_share:
            windows += f", {settings.late_share:.0%} late"
    tables = "1 table"
    if settings.shards > 1:
        tables = f"{settings.shards} shards of {human_bytes(round(settings.shard_bytes_per_second))}/s each"
    return (
        f"{human_bytes(settings.ingest_bytes_per_second)}/s for {_duration(settings.duration_seconds)} into "
        f"{tables} in flushes of {human_bytes(settings.flush_bytes)},\nkeys {settings.locality}, {windows}, "
        f"{counted(settings.shard_workers * settings.shards, 'worker')} of "
        f"{human_bytes(settings.task_bytes_per_second)}/s"
    )


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length or seconds == length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def _print_points(strategy: str, result: Result) -> None:
    points = result.points(_POINTS)
    levels = sorted({level for _, sample in points for level in sample.level_bytes})
    columns = [("time", True), ("fragments", True), ("runs at 0", True)]
    columns += [(f"level {level}", True) for level in levels]
    columns += [(name, True) for name in ("WA", "lately", "reads", "debt")]
    columns += [("", False), ("busy", True)]
    print_table(strategy, columns, [_point_row(result, levels, a, b) for a, b in points])
    if result.gave_up:
        click.echo(
            f"ended early after {_duration(result.last.seconds)}: level 0 has "
            f"{counted(result.peaks.level0_runs, 'run')}, far more than should stop writers"
        )


def _point_row(
    result: Result, levels: Sequence[int], before: ShardSample, sample: ShardSample
) -> list[str]:
    return [
        _duration(sample.seconds),
        f"{sample.fragments * result.shards:,}",
        str(sample.debt.level0_runs),
        *(human_bytes(sample.level_bytes.get(level, 0) * result.shards) for level in levels),
        f"{sample.write_amplification:.1f}",
        f"{write_amplification(before, sample):.1f}",
        f"{sample.read_amplification:.1f}",
        f"{sample.debt.score:.2f}",
        str(sample.debt.pressure),
        f"{worker_use(before, sample, result.workers):.0%}",
    ]


def _print_summary(results: dict[str, Result]) -> None:
    columns = [("summary", False), ("WA", True), ("2nd half", True), ("reads", True), ("worst", True),
               ("most runs at 0", True), ("peak debt", True), ("slow", True), ("stop", True),
               ("kept up", False), ("compactions write", True), ("busy", True)]  # fmt: skip
    print_table(None, columns, [_summary_row(name, result) for name, result in results.items()])


def _summary_row(name: str, result: Result) -> list[str]:
    mean_read, max_read = result.read_amplification
    peaks = result.peaks
    return [
        name,
        f"{result.last.write_amplification:.1f}",
        f"{result.late_write_amplification:.1f}",
        f"{mean_read:.1f}",
        f"{max_read:.1f}",
        str(peaks.level0_runs),
        f"{peaks.score:.2f}",
        f"{peaks.slow / max(1, peaks.flushes):.0%}",
        f"{peaks.stop / max(1, peaks.flushes):.0%}",
        "yes" if result.has_kept_up else "NO",
        f"{human_bytes(round(result.compaction_bytes_per_second * result.shards))}/s",
        f"{result.worker_use:.0%}",
    ]
