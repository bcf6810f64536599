"""Implements `watch`."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import click

from compactor.cli.engine_options import (
    engine_options,
    lease_seconds,
    master_of_worker,
    open_engine,
)
from compactor.cli.lake_options import LakeChoice, lake_options
from compactor.cli.properties import say_overrides
from compactor.cli.setting_options import chosen, setting_options
from compactor.cli.shared_options import duration_seconds
from compactor.cli.spark_options import IN_PROCESS, check_engine
from compactor.cli.tables import address_of
from compactor.cli.telemetry import Telemetry, log_options, traces_of_environment
from compactor.common import interrupts
from compactor.common.foreign import shown_path
from compactor.common.logs import is_json
from compactor.common.plain_values import plain_dict
from compactor.compaction.driver import Driver, DriverSettings
from compactor.compaction.engine import Engine
from compactor.compaction.listener import Listener
from compactor.compaction.worker import Worker
from compactor.errors import TableNotFoundError, UsageError
from compactor.lakes.following import Following
from compactor.lakes.publish_report import PublishReport
from compactor.resources.packages import Extra, required
from compactor.settings.compaction import OF_WRITERS, CompactionSettings, Policy
from compactor.settings.model import Settings
from compactor.settings.names import as_flag
from compactor.settings.properties import Properties
from compactor.settings.units import duration_text
from compactor.stores.user_files import WILDCARDS
from compactor.telemetry.events import Event, Events, as_line, to_log
from compactor.telemetry.metrics.health import Health
from compactor.telemetry.metrics.recorder import Recorder

_POLL_SECONDS: Final = 5.0
_STALL_SECONDS: Final = 300.0
_IN_PROCESS_STALL_SECONDS: Final = 3600.0

_WATCH_EPILOG = """\b
Examples:
  compactor watch s3://bucket/logs s3://bucket/metrics --master 'local[4]'
  compactor watch ./logs --poll 2s --json             one JSON object a line
  compactor watch s3://bucket/logs --metrics-port 9464 --log-format json
  compactor watch s3://bucket/logs --publish s3://lake/logs --as delta --levels 1+
  compactor watch --config fleet.yaml --dry-run       checks the file, and shows the tables and what is due
  compactor watch --config fleet.yaml --master 'local[4]' --metrics-port 9464

Several processes may watch one table: each skips the fragments that another has leased. After SIGTERM or
Ctrl-C no compaction begins; running ones may end within --drain, then their leases are released, so that
other workers can take over at once. Either way the exit code is 0, and nothing is lost."""


@click.command("watch", epilog=_WATCH_EPILOG)
@click.argument("tables", nargs=-1, metavar="[TABLE...]")
@click.option("--config", metavar="FILE",
              help="Watch the tables that this file names by patterns, with settings and schedules of "
              "each; it is read again when it changes. It takes the place of TABLEs and of their "
              "properties.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="With --config: check the file, show its tables and what "
              "is due, and change nothing.")  # fmt: skip
@click.option("--poll", "poll_seconds", type=duration_seconds, metavar="DURATION",
              help="How often to look at idle tables.  [default: "
              f"{duration_text(_POLL_SECONDS)}]")  # fmt: skip
@click.option("--drain", "drain_seconds", type=duration_seconds, metavar="DURATION", default="25s",
              show_default=True, help="Time for running compactions to end after a signal.")  # fmt: skip
@setting_options(Policy, without=OF_WRITERS)
@setting_options(CompactionSettings)
@engine_options("local[*]; in-process where there is no PySpark or no Java")
@click.option("--metrics-port", type=click.IntRange(0, 65_535),
              help="Serve /metrics for Prometheus, /healthz and /readyz on this port; 0 takes any free "
              "port.  [default: none]")  # fmt: skip
@click.option("--metrics-address", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="Address of that port; 0.0.0.0 means all interfaces. There is no password.")  # fmt: skip
@click.option("--stall-after", "stall_seconds", type=duration_seconds, metavar="DURATION",
              help="/healthz fails when the loop has made no round for this long.  [default: "
              f"{duration_text(_STALL_SECONDS)}; in-process, where compactions hold up the loop: "
              f"{duration_text(_IN_PROCESS_STALL_SECONDS)}]")  # fmt: skip
@click.option("--publish", "destination", metavar="DESTINATION",
              help="Keep a copy of the one TABLE up to date there, as `publish` does.")  # fmt: skip
@lake_options(required=False)
@log_options
@click.option("--json", "as_json", is_flag=True, help="Events as JSON lines on stdout.")
def watch_command(
    tables: tuple[str, ...],
    config: str | None,
    dry_run: bool,
    poll_seconds: float | None,
    drain_seconds: float,
    master: str | None,
    max_tasks: int | None,
    metrics_port: int | None,
    metrics_address: str,
    stall_seconds: float | None,
    destination: str | None,
    lake: LakeChoice,
    as_json: bool,
    **options: Any,
) -> None:
    """Keep TABLEs compacted: look, plan by debt, compact, commit, until stopped.

    The command waits for a table that does not exist yet, and retries an unreachable store less and less
    often. Events are lines on stdout; with --log-format json they are lines of the log, on stderr.

    Options override the properties of a table, which override the defaults below (`compactor alter --set`).
    """
    policy, settings = chosen(Policy, options), chosen(CompactionSettings, options)
    given = [*policy.model_fields_set, *settings.model_fields_set - settings.of_run]
    given += [] if poll_seconds is None else ["poll"]
    given += [] if destination is None else ["publish"]
    _check_kind(tables, config, given, dry_run=dry_run)
    if config is not None and dry_run:
        # Imported here, since other commands need no fleets.
        from compactor.cli.fleet_check import check_fleet

        check_fleet(config, as_json=as_json)
        return
    check_engine(master)
    _check_tables(tables)
    _check_copy(tables, destination, lake)
    master = master_of_worker(master)
    urls = [address_of(table) for table in tables]
    stop = threading.Event()
    # Handlers are set before Spark starts, which may take seconds.
    _stop_on_signals(stop)
    events = Events(_sinks(as_json=as_json))
    if stall_seconds is None:
        stall_seconds = _IN_PROCESS_STALL_SECONDS if master == IN_PROCESS else _STALL_SECONDS
    poll_seconds = _POLL_SECONDS if poll_seconds is None else poll_seconds
    health = Health(urls, stall_seconds=stall_seconds + poll_seconds, is_draining=stop.is_set)
    documents: dict[str, Callable[[], object]] = {}
    with (
        traces_of_environment() as traces,
        _served(metrics_address, metrics_port, health, documents) as (recorder, port),
    ):
        told = Telemetry(recorder, traces)
        served = {} if port is None else {"metrics_port": port}
        if config is not None:
            from compactor.cli.fleet import FleetTeller, Opening, open_fleet

            teller = FleetTeller(events, told)
            documents["/tables"] = teller.tables
            fleet = open_fleet(config, Opening(told, lease_seconds(master), settings), teller)
            if (engine := _opened_engine(master, max_tasks, events)) is None:
                return
            health.started()
            events.say("watching", config=config, slots=engine.slots, **served)
            with contextlib.closing(fleet):
                listener = told.listener(events, health, fleet)
                Worker([], engine, listener=listener).run(
                    stop, poll_seconds=poll_seconds, drain_seconds=drain_seconds, rounds=fleet
                )
            events.say("stopped", done=events.done, void=events.void, failed=events.failures)
            return
        drives = DriverSettings(
            policy=policy, compaction=settings, lease_seconds=lease_seconds(master)
        )
        drivers = [Driver(told.open_log(table), drives) for table in tables]
        for driver in drivers:
            told.begin_compactions(driver)
        if (engine := _opened_engine(master, max_tasks, events)) is None:
            return
        health.started()
        events.say("watching", tables=list(tables), slots=engine.slots, **served)
        with _copied(tables, destination, lake, events) as copying:
            listeners = events, health, _Overriding(policy, settings), *copying
            worker = Worker(drivers, engine, listener=told.listener(*listeners))
            worker.run(stop, poll_seconds=poll_seconds, drain_seconds=drain_seconds)
        events.say("stopped", done=events.done, void=events.void, failed=events.failures)


def _opened_engine(master: str | None, max_tasks: int | None, events: Events) -> Engine | None:
    """Opens the engine; None if a signal came meanwhile: a start of Spark has nothing to bring to its end."""
    try:
        with interrupts.delivered():
            return open_engine(master, max_tasks)
    except KeyboardInterrupt:
        events.say("stopped", done=0, void=0, failed=0)
        return None


def _check_kind(
    tables: Sequence[str], config: str | None, given: Sequence[str], *, dry_run: bool
) -> None:
    """Raises `UsageError` unless there are tables, or a file and nothing that the file says.

    given: the settings that options name.
    """
    if config is None:
        if not tables:
            raise UsageError("name a TABLE, or a file of tables by --config")
        if dry_run:
            raise UsageError(
                "--dry-run: it checks the file of --config; see `compactor compact --dry-run`"
            )
        return
    if tables:
        raise UsageError("--config: name tables in the file, or as TABLEs, not both")
    if given:
        raise UsageError(
            f"{as_flag(given[0])}: the file of --config says it for its tables: leave it out"
        )


def _check_tables(tables: Sequence[str]) -> None:
    """Raises `UsageError` for a table that is named twice, and for a pattern."""
    if len(set(tables)) < len(tables):
        raise UsageError("a table is named twice")
    for number, table in enumerate(tables, 1):
        if _is_pattern(table):
            raise UsageError(
                f"table {number}, {shown_path(table)}: is a pattern: name it in a file of tables, as "
                "`tables: [{at: ...}]`, and that file by --config"
            )


def _is_pattern(table: str) -> bool:
    """Says whether an address has a wildcard: on a local disk in a name that no folder has, elsewhere a star,
    as names of objects may have the others."""
    scheme, _, rest = table.partition("://")
    if rest and scheme != "file":
        return "*" in rest
    path = Path(rest or table)
    wild = [each for each in (path, *path.parents) if not WILDCARDS.isdisjoint(each.name)]
    return bool(wild) and not wild[-1].exists()


def _check_copy(tables: Sequence[str], destination: str | None, lake: LakeChoice) -> None:
    """Raises `UsageError` for a copy that can't be made, even if there is no table yet."""
    if destination is None:
        if lake.is_given:
            raise UsageError("--as, --levels, --catalog and --name: name the place by --publish")
        return
    if lake.kind is None:
        raise UsageError("--publish: say what other engines find there, by --as")
    if len(tables) > 1:
        raise UsageError(
            "--publish: a copy is of one TABLE: watch the others by a process of their own"
        )
    with suppress(TableNotFoundError):
        lake.publisher(tables[0], destination)


@contextmanager
def _copied(
    tables: Sequence[str], destination: str | None, lake: LakeChoice, events: Events
) -> Iterator[list[Following]]:
    """Lets a thread publish while the block runs, if a destination was given."""
    if destination is None:
        yield []
        return
    url = address_of(tables[0])

    def published(report: PublishReport) -> None:
        if report.added or report.removed:
            events.say("published", table=url, destination=destination, **plain_dict(report))

    def failed(error: Exception, retry_seconds: float) -> None:
        values = {
            "table": url,
            "destination": destination,
            "reason": str(error),
            "retry_seconds": retry_seconds,
        }
        events.tell(Event("error", values, level=logging.WARNING))

    following = Following(lambda: lake.publisher(tables[0], destination), published, failed)
    try:
        yield [following]
    finally:
        following.close()


class _Overriding(Listener):
    """Says for each table, whenever they have changed, which of its properties the options override."""

    def __init__(self, *given: Settings) -> None:
        self._given = given
        self._seen: dict[str, Properties] = {}

    def looked(self, driver: Driver) -> None:
        properties = driver.log.latest.properties
        if self._seen.get(driver.url, ()) != properties:
            self._seen[driver.url] = properties
            say_overrides(properties, *self._given, table=driver.url)


def _sinks(*, as_json: bool) -> list[Callable[[Event], None]]:
    """Writes events as lines on stdout, unless the log has them as JSON already."""
    sinks: list[Callable[[Event], None]] = [to_log] if is_json() else []
    if as_json or not sinks:
        sinks.append(lambda event: click.echo(as_line(event, as_json=as_json)))
    return sinks


@contextmanager
def _served(
    address: str,
    port: int | None,
    health: Health,
    documents: Mapping[str, Callable[[], object]],
) -> Iterator[tuple[Recorder | None, int | None]]:
    """Serves metrics and health over HTTP while the block runs, if a port was given."""
    if port is None:
        yield None, None
        return
    # Imported here, since a process without a port does not need it.
    with required(Extra.WORKER, "--metrics-port"):
        from compactor.telemetry.metrics.registry import MetricsRegistry
        from compactor.telemetry.metrics.server import metrics_app, serving

    registry = MetricsRegistry(of_process=True)
    checks = {"/healthz": health.live, "/readyz": health.ready}
    app = metrics_app(registry.prometheus, checks, documents)
    with serving(app, address, port) as listening:
        yield Recorder(registry.apply), listening


def _stop_on_signals(stop: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
