"""Implements `simulate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from compactor.cli.display import print_table, progress
from compactor.cli.options import duration_seconds
from compactor.cli.output import echo_json, human_bytes
from compactor.errors import ConfigError, UsageError
from compactor.settings import units
from compactor.settings.compaction import (
    CompactionSettings,
    Policy,
    Strategy,
    compaction_settings,
    policy,
)
from compactor.simulate.plot import check_plot, plot
from compactor.simulate.result import Result, ShardSample, worker_use, write_amplification
from compactor.simulate.settings import (
    DEFAULT_WORKERS_PER_SHARD,
    FLUSHES_PER_SHARD,
    Locality,
    SimulationSettings,
    shards_for,
)
from compactor.simulate.simulation import Simulation

_POINTS: Final = 12
_POLICY_NAMES: Final = (
    "level0_trigger_runs",
    "level_multiplier",
    "level1_target_bytes",
    "push_ratio",
    "max_merge_runs",
)
_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Bytes(click.ParamType[int]):
    """A size such as `256MiB`, a rate such as `10GiB/s`, or a plain number of bytes."""

    name = "bytes"

    def __init__(self, *, is_rate: bool = False) -> None:
        self._is_rate = is_rate

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).removesuffix("/s") if self._is_rate else str(value)
        try:
            size = units.size_bytes(text)
        except ValueError:
            size = 0
        if size < 1:
            examples = "10GiB/s or 20MiB/s" if self._is_rate else "256MiB, 1.5GiB or 4096"
            self.fail(f"{str(value)!r} is not a {self._what}; write {examples}", param, ctx)
        return size

    @property
    def _what(self) -> str:
        return "rate" if self._is_rate else "size"


class _Locality(click.ParamType[Locality]):
    name = "locality"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Locality:
        try:
            return value if isinstance(value, Locality) else Locality.parse(value)
        except ConfigError as error:
            self.fail(str(error), param, ctx)


_SIZE: Final = _Bytes()
_RATE: Final = _Bytes(is_rate=True)


def _workload_options(command: _Command) -> _Command:
    for option in reversed(
        (
            click.option("--ingest", type=_RATE, metavar="BYTES/s", default="10GiB/s", show_default=True,
                         help="Stored bytes that all writers of all shards write."),
            click.option("--duration", type=duration_seconds, metavar="DURATION", default="14d",
                         show_default=True, help="Time to simulate."),
            click.option("--flush-bytes", type=_SIZE, metavar="BYTES", default="256MiB", show_default=True,
                         help="Size of a flush, which is one level-0 fragment; varies by a tenth."),
            click.option("--locality", type=_Locality(), metavar="WHERE", default="whole", show_default=True,
                         help="Keys of a flush. whole: all of them. random:SHARE: a part, somewhere. append: "
                         "greater than all before, as when time comes first in the key."),
            click.option("--time-window", type=duration_seconds, metavar="DURATION",
                         help="Each fragment has rows of one window of this length.  [default: no windows]"),
            click.option("--retention", type=duration_seconds, metavar="DURATION",
                         help="Drop windows that ended longer ago.  [default: kept for ever]"),
            click.option("--late", type=click.FloatRange(0, 1, max_open=True), default=0.0,
                         show_default=True,
                         help="Share of each flush that belongs to the previous window."),
            click.option("--shards", type=click.IntRange(min=1),
                         help="Tables that share rate and workers equally; one of them is simulated.  "
                         f"[default: enough that one has at most {FLUSHES_PER_SHARD:,} flushes]"),
            click.option("--workers", type=click.IntRange(min=1),
                         help="Most compactions at a time, all shards together.  [default: "
                         f"{DEFAULT_WORKERS_PER_SHARD} a shard]"),
            click.option("--task-bytes-per-second", type=_RATE, metavar="BYTES/s", default="60MiB/s",
                         show_default=True,
                         help="Stored bytes that one compaction processes in a second. An assumption: "
                         "`make bench` measures it (bytes of its fragments by seconds)."),
            click.option("--seed", type=int, default=0, show_default=True,
                         help="Seed of the random numbers; the same seed gives the same result."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def _policy_options(command: _Command) -> _Command:
    for option in reversed(
        (
            click.option("--strategy", "strategies", multiple=True,
                         type=click.Choice([str(s) for s in Strategy]), default=[str(Strategy.LEVELED)],
                         show_default=True, help="Strategy to simulate; several are compared."),
            click.option("--level0-trigger-runs", type=int,
                         help="Runs of similar size that start a level-0 compaction.  [default: "
                         f"{Policy().level0_trigger_runs}]"),
            click.option("--level-multiplier", type=int,
                         help="Size of each level relative to the one above.  [default: "
                         f"{Policy().level_multiplier}]"),
            click.option("--level1-target-bytes", type=_SIZE, metavar="BYTES",
                         help=f"Size of level 1.  [default: {Policy().level1_target_bytes >> 30}GiB]"),
            click.option("--push-ratio", type=float,
                         help="Bytes of level 1 that level 0 may rewrite for each of its own.  [default: "
                         f"{Policy().push_ratio:g}]"),
            click.option("--max-merge-runs", type=int,
                         help="Most runs of level 0 that one size-tiered merge takes.  [default: "
                         f"{Policy().max_merge_runs}]"),
            click.option("--target-fragment-bytes", type=_SIZE, metavar="BYTES",
                         help="Size of output fragments.  [default: "
                         f"{CompactionSettings().target_fragment_bytes >> 20}MiB]"),
        )
    ):  # fmt: skip
        command = option(command)
    return command


_EPILOG = """\b
Examples:
  compactor simulate                                          10 GiB/s for two weeks, as the defaults do it
  compactor simulate --strategy leveled --strategy tiered --plot both.png
  compactor simulate --ingest 20MiB/s --duration 3d --workers 4
  compactor simulate --time-window 1d --retention 7d --late 0.02
  compactor simulate --locality random:0.01 --level-multiplier 8 --json

The real planner decides; only the fragments are synthetic. The bytes of a flush lie evenly over its keys, and
a merge writes as much as it reads, at the speed of --task-bytes-per-second. Writers never wait, however high
the debt; once level 0 has ten times the runs that should stop them, the simulation ends early.

\b
runs at 0   sorted runs at level 0, of the time window that has most
WA          write amplification: bytes written per byte ingested, the flush itself counted; in total, and
            since the line before
reads       read amplification: sorted runs that a read of one random key looks at
debt        from 0.5 writers should slow down, from 1 they should wait
busy        share of the workers' time since the line before"""


@click.command("simulate", epilog=_EPILOG)
@_workload_options
@_policy_options
@click.option(
    "--plot", "plot_path", metavar="FILE", help="Also draw a picture: .png, .svg or .pdf."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def simulate_command(
    strategies: tuple[str, ...],
    plot_path: str | None,
    target_fragment_bytes: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Try a policy on a synthetic ingest with the real planner: weeks in minutes, without data.

    Shows how fragments, levels, write and read amplification and compaction debt develop, and whether the
    workers keep up.
    """
    if plot_path is not None:
        check_plot(plot_path)
    settings = _settings(options)
    compaction = compaction_settings(target_fragment_bytes=target_fragment_bytes)
    chosen = {name: options[name] for name in _POLICY_NAMES}
    policies = {name: policy(strategy=name, **chosen) for name in dict.fromkeys(strategies)}
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


def _settings(options: dict[str, Any]) -> SimulationSettings:
    """Makes the settings from options. Raises `ConfigError` for settings that contradict one another."""
    ingest, duration, flush = options["ingest"], options["duration"], options["flush_bytes"]
    window, retention = options["time_window"], options["retention"]
    for name, value in (("--duration", duration), ("--time-window", window)):
        if value is not None and value < 1:
            raise UsageError(f"{name} must be at least one second")
    shards = options["shards"] or shards_for(ingest, duration, flush)
    return SimulationSettings(
        ingest_bytes_per_second=ingest,
        duration_seconds=duration,
        flush_bytes=flush,
        shards=shards,
        workers=options["workers"] or DEFAULT_WORKERS_PER_SHARD * shards,
        task_bytes_per_second=options["task_bytes_per_second"],
        locality=options["locality"],
        window_seconds=None if window is None else round(window),
        retention_seconds=None if retention is None else round(retention),
        late_share=options["late"],
        seed=options["seed"],
    )


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
        f"{settings.shard_workers * settings.shards} workers of "
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
            f"{result.peaks.level0_runs} runs, far more than should stop writers"
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
