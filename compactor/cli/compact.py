"""Implements `compact`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import click
import msgspec.structs

from compactor.cli.backlog_text import held_lines
from compactor.cli.display import print_table, progress, terminal
from compactor.cli.engine_options import (
    engine_options,
    lease_seconds,
    master_for,
    open_engine,
)
from compactor.cli.explain import explain_plan
from compactor.cli.output import echo_json, echo_line, human_bytes, warn
from compactor.cli.properties import say_overrides
from compactor.cli.setting_options import chosen, setting_options
from compactor.cli.spark_options import check_engine
from compactor.cli.tables import address_of, open_log
from compactor.cli.telemetry import (
    MetricsTargets,
    Telemetry,
    log_options,
    metrics_options,
    telemetry,
)
from compactor.common.counts import counted
from compactor.common.logs import is_json
from compactor.common.message import Message
from compactor.common.ranges import range_text
from compactor.compaction.compact_report import CompactReport, refuse
from compactor.compaction.compaction import Compaction
from compactor.compaction.driver import Driver, DriverSettings, FinishedCompaction
from compactor.compaction.listener import Listener
from compactor.compaction.owner import shown_owner
from compactor.compaction.plan_report import PlanReport
from compactor.compaction.planned import Planned, plan_next
from compactor.compaction.worker import check_done, check_quarantine, compact
from compactor.errors import UsageError
from compactor.planner.debt import debt_of
from compactor.planner.estimate import Estimate
from compactor.planner.spread import Spread
from compactor.rows.flags import DELETED, EXPIRED, SUPERSEDED, TOMBSTONES
from compactor.settings.compaction import OF_WRITERS, CompactionSettings, Policy, Strategy
from compactor.table.snapshot import Snapshot
from compactor.telemetry.events import Events, to_log

_COMPACT_EPILOG = """\b
Examples:
  compactor compact ./logs                            what is due
  compactor compact ./logs --dry-run                  what would be done first, why, at what cost
  compactor compact ./logs --explain                  with which memory, stage by stage
  compactor compact ./logs --profile                  and where the time went
  compactor compact s3://bucket/logs --strategy full --master 'local[2]' --json
  compactor compact ./logs --master in-process        without Spark, whatever is due
  compactor compact ./logs --metrics-textfile /var/lib/node_exporter/compactor.prom

Without --master, what is due runs in this process where it is small or Spark can't start, and on Spark
where that pays for its start, which takes some 10 s; a line on stderr says which, and why. Under
spark-submit, leave --master out: the session's own master is used. Each compaction is committed as soon
as it ends, so a failed or killed run loses no other and leaves no half of any. A failed compaction is tried
three times, unless trying again can't help. A fragment found damaged each time is quarantined (`inspect`
shows it, `release` readmits it).
The exit code is 1 if a compaction failed for good or a fragment is in quarantine."""


@click.command("compact", epilog=_COMPACT_EPILOG)
@click.argument("table")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show the first compactions, with reasons and costs, and change nothing.",
)
@click.option(
    "--explain",
    is_flag=True,
    help="Show how each compaction would use memory, stage by stage, and change nothing. No data "
    "is read.",
)
@click.option(
    "--format",
    "explain_format",
    type=click.Choice(["text", "json"]),
    help="Output format of --explain.  [default: text]",
)
@click.option("--take-over", is_flag=True, help="Do not wait for the leases of others.")
@setting_options(Policy, without=OF_WRITERS)
@setting_options(CompactionSettings)
@engine_options("where the plan ends first")
@log_options
@metrics_options
@click.option("--profile", is_flag=True, help="Also show the time that each stage took.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
def compact_command(
    table: str,
    dry_run: bool,
    explain: bool,
    explain_format: str | None,
    take_over: bool,
    profile: bool,
    master: str | None,
    max_tasks: int | None,
    as_json: bool,
    targets: MetricsTargets,
    **options: Any,
) -> None:
    """Merge fragments of TABLE into larger, disjoint, sorted ones, if compactions are due.

    Each compaction is one task, of this process or of Spark, that reads every input by one GET. Safe to
    run beside writers, readers and other compactions.

    Options override the properties of TABLE, which override the defaults below (`compactor alter --set`).
    """
    policy, settings = chosen(Policy, options), chosen(CompactionSettings, options)
    check_engine(master)
    if explain_format and not explain:
        raise UsageError("--format is for --explain; a report comes as JSON by --json")
    drives = DriverSettings(
        policy=policy,
        compaction=settings,
        gives_up=True,
        takes_over=take_over,
    )
    if explain or dry_run:
        driver = Driver(open_log(table), drives)
        planned = plan_next(driver, driver.log.current())
        say_overrides(planned.snapshot.properties, policy, settings)
        if explain:
            wants_json = as_json if explain_format is None else explain_format == "json"
            explain_plan(planned, as_json=wants_json)
        else:
            _show_plan(planned, as_json=as_json)
        return
    with telemetry("compact", address_of(table), targets) as told:
        log = told.open_log(table)
        driver = Driver(log, drives)
        told.begin_compactions(driver)
        planned = plan_next(driver, log.current())
        say_overrides(planned.snapshot.properties, policy, settings)
        if planned:
            # Before Spark takes seconds to start.
            predicted = [compaction.predicted for compaction in planned.report().compactions]
            master = master_for(master, max_tasks, predicted)
            driver = Driver(
                log, msgspec.structs.replace(drives, lease_seconds=lease_seconds(master))
            )
        _compact(driver, planned, told, master, max_tasks, as_json=as_json, profile=profile)


def _compact(
    driver: Driver,
    planned: Planned,
    told: Telemetry,
    master: str | None,
    max_tasks: int | None,
    *,
    as_json: bool,
    profile: bool,
) -> None:
    announcer = _Announcer()
    listener = told.listener(Events([to_log]) if is_json() else announcer)
    if not planned:
        listener.looked(driver)
        refuse(planned.plan)
        if as_json:
            echo_json(CompactReport(planned.snapshot.version).to_json())
        else:
            _print_idle(planned)
        check_quarantine(driver.log.latest)
        return
    engine = open_engine(master, max_tasks, announcer.read)
    with progress("compact", None) as advance:
        announcer.advance = advance
        report = compact(driver, engine, listener=listener)
    if as_json:
        echo_json(report.to_json())
    else:
        _print_report(report)
        if profile and report.done:
            _print_profile(report.to_json())
    check_done(driver, report)


class _Announcer(Listener):
    """A listener that prints compactions when they begin (on terminals only) and failed attempts, on
    stderr, and shows how many bytes of all compactions that were begun are done, or read in this process."""

    def __init__(self) -> None:
        self.advance: Callable[[int, int], None] = lambda _done, _total: None
        self._done_bytes = self._total_bytes = 0

    def decided(self, driver: Driver, compactions: Sequence[Compaction]) -> None:  # noqa: ARG002
        self._total_bytes += sum(compaction.spec.size_bytes for compaction in compactions)
        self.advance(self._done_bytes, self._total_bytes)
        if (console := terminal()) is None:
            return
        for compaction in compactions:
            console.print(f"{compaction.spec.reason}: {human_bytes(compaction.spec.size_bytes)}")

    def read(self, bytes_read: int) -> None:
        self.advance(min(self._done_bytes + bytes_read, self._total_bytes), self._total_bytes)

    def finished(self, driver: Driver, finished: FinishedCompaction) -> None:  # noqa: ARG002
        if finished.outcome.failure:
            self._total_bytes -= finished.compaction.spec.size_bytes  # decided again, if at all
        else:
            self._done_bytes += finished.compaction.spec.size_bytes
        self.advance(self._done_bytes, self._total_bytes)
        if finished.outcome.is_of_machine:
            return  # reported by the error that ends the command
        if finished.outcome.failure and not finished.is_void:
            warn(Message(f"attempt {finished.attempt} failed: ", finished.outcome.failure))


def _show_plan(planned: Planned, *, as_json: bool) -> None:
    if as_json:
        echo_json(planned.report().to_json())
    elif planned:
        _print_plan(planned.report())
    else:
        _print_idle(planned)


def _print_idle(planned: Planned) -> None:
    snapshot = planned.snapshot
    why = "what is due is held up" if planned.plan.refused else _why_idle(snapshot, planned.policy)
    click.echo(f"nothing to compact at version {snapshot.version}: {why}")
    for line in held_lines((*planned.plan.blocked, *planned.plan.refused)):
        echo_line(Message("  held up: ", line))
    for lease in snapshot.leases.values():
        left = (lease.expires_unix_ms - planned.lease_unix_ms) / 1000
        click.echo(
            f"  {counted(len(lease.inputs), 'fragment is', 'fragments are')} being compacted by "
            f"{shown_owner(lease.owner)} (free in {max(0, left):.0f} s if it has died; --take-over "
            "does not wait)"
        )


def _why_idle(snapshot: Snapshot, policy: Policy) -> str:
    fragments = counted(len(snapshot.fragments), "fragment is", "fragments are")
    if snapshot.quarantine:
        return f"{len(snapshot.quarantine):,} of {fragments} in quarantine"
    if snapshot.leases:
        leased = sum(len(lease.inputs) for lease in snapshot.leases.values())
        return f"{leased:,} of {fragments} being compacted"
    runs = debt_of(snapshot, policy).level0_runs
    match policy.strategy:
        case Strategy.FULL:
            return "it is one sorted run"
        case Strategy.OVERLAPPING:
            return "no fragments overlap"
        case _:
            return (
                f"{counted(runs, 'sorted run')} at level 0, {policy.level0_trigger_runs} of like "
                "size start a compaction (--strategy overlapping and full do not wait for that)"
            )


def _print_report(report: CompactReport) -> None:
    figures = report.to_json()
    if not report.done and not report.void:
        click.echo(f"no fragment was rewritten; version {figures['version']}")
        return
    click.echo(
        f"{counted(figures['input_fragments'], 'fragment')} compacted into "
        f"{figures['output_fragments']:,} by "
        f"{counted(figures['tasks'], 'task')}, {counted(figures['rows_in'], 'row')} read, "
        f"{human_bytes(figures['bytes_in'])} to {human_bytes(figures['bytes_out'])}, "
        f"{counted(figures['gets'], 'GET')} ({figures['resumed_gets']} resumed), "
        f"{_dropped(figures)}{_restarts(figures)}"
        f"peak {human_bytes(figures['peak_rss_bytes'])} RSS, {report.seconds:.1f} s; "
        f"version {figures['version']}"
    )
    if report.void:
        click.echo(
            f"{counted(len(report.void), 'compaction was', 'compactions were')} overtaken by others: "
            "their result stands"
        )
    if report.done:
        _print_predicted(report.predicted, figures)


_IN_WORDS: Final = {
    DELETED: "deleted",
    EXPIRED: "expired",
    SUPERSEDED: "superseded",
    TOMBSTONES: "tombstones",
}


def _dropped(figures: dict[str, Any]) -> str:
    reasons = {name: rows for name, rows in figures["dropped_by_reason"].items() if rows}
    if not reasons:
        return ""
    listed = ", ".join(f"{rows:,} {_IN_WORDS[name]}" for name, rows in reasons.items())
    return f"{counted(figures['dropped_rows'], 'row')} left out ({listed}), "


def _restarts(figures: dict[str, Any]) -> str:
    if not figures["restarts"]:
        return ""
    return (
        f"{counted(figures['restarts'], 'second pass', 'second passes')} for heavy row groups "
        f"({counted(figures['replayed_inputs'], 'input')} read from local disk), "
    )


def _print_predicted(predicted: Estimate, actual: dict[str, Any]) -> None:
    click.echo("")
    columns = [("", False), ("predicted", True), ("actual", True)]
    print_table(None, columns, [
        ["GETs", str(predicted.gets), str(actual["gets"])],
        ["PUTs (objects)", str(predicted.puts), str(actual["puts"])],
        ["rows read", f"{predicted.rows:,}", f"{actual['rows_in']:,}"],
        ["bytes read", human_bytes(predicted.bytes_in), human_bytes(actual["bytes_in"])],
        ["bytes written", human_bytes(predicted.bytes_out), human_bytes(actual["bytes_out"])],
        ["peak RSS of a process", _bytes_range(predicted.resident_bytes),
         human_bytes(actual["peak_rss_bytes"])],
        ["task seconds", _seconds_range(predicted.task_seconds), _seconds(actual["task_seconds"])],
        ["CPU seconds", _seconds_range(predicted.cpu_seconds), _seconds(actual["cpu_seconds"])],
    ])  # fmt: skip


def _bytes_range(spread: Spread) -> str:
    return range_text(human_bytes(round(spread.low)), human_bytes(round(spread.high)))


def _seconds_range(spread: Spread) -> str:
    return range_text(_seconds(spread.low), _seconds(spread.high))


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds >= 1 else f"{seconds:.2f}"


def _print_profile(figures: dict[str, Any]) -> None:
    seconds: dict[str, float] = figures["stage_seconds"]
    whole = max(figures["task_seconds"], 1e-9)
    rows = [*seconds.items(), ("other", whole - sum(seconds.values()))]
    columns = [("stage", False), ("seconds", True), ("share", True)]
    click.echo("")
    print_table(
        None,
        columns,
        [[stage, f"{spent:.2f}", f"{spent / whole:.0%}"] for stage, spent in rows],
    )
    click.echo(
        f"of {figures['task_seconds']:.2f} task seconds; {figures['copied_rows']:,} of "
        f"{counted(figures['rows_in'], 'row')} went out as they came in, compressed and unread"
    )


def _print_plan(report: PlanReport) -> None:
    click.echo(f"version {report.version}: {_summary(report)}")
    if report.compactions:
        columns = [("priority", True), ("to level", True), ("GETs", True), ("PUTs", True), ("rows", True),
                   ("bytes", True), ("peak RSS", True), ("seconds", True), ("why", False)]  # fmt: skip
        print_table(None, columns, [
            [f"{c.priority:.1f}", str(c.output_level), str(e.gets), str(e.puts), f"{e.rows:,}",
             human_bytes(e.bytes_in), _bytes_range(e.resident_bytes), _seconds_range(e.task_seconds),
             c.reason]
            for c in report.compactions
            for e in [c.predicted]
        ])  # fmt: skip
    for move in report.trivial_moves:
        click.echo(
            f"move {counted(len(move.fragments), 'fragment')} to level {move.output_level}: {move.reason}"
        )
    if report.expired:
        click.echo(
            f"drop {counted(len(report.expired), 'fragment')} of time windows past retention"
        )
    for line in held_lines(report.held_up):
        echo_line(Message("held up: ", line))


def _summary(report: PlanReport) -> str:
    inputs = sum(len(compaction.inputs) for compaction in report.compactions)
    return (
        f"{counted(len(report.compactions), 'compaction')} of {counted(inputs, 'fragment')}, "
        f"{counted(len(report.trivial_moves), 'trivial move')}"
    )
