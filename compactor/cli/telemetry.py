"""Telemetry of commands: options for logs and metrics, and traces configured by the environment."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from compactor.cli.output import warn
from compactor.common import logs
from compactor.common.logs import LEVELS, LogFormat, LogSettings
from compactor.errors import CompactorError, UsageError
from compactor.resources.packages import Extra, required
from compactor.telemetry import tracing
from compactor.telemetry.tracing import Tracing, TracingUnavailableError

if TYPE_CHECKING:
    from compactor.compaction.driver import Driver
    from compactor.compaction.listener import Listener, Listeners
    from compactor.stores.base import Store
    from compactor.table.commit_log import CommitLog
    from compactor.table.observed_log import CommitReport
    from compactor.telemetry.metrics.catalog import Change
    from compactor.telemetry.metrics.recorder import Recorder

_LEVELS: Final = {LogFormat.TEXT: LogSettings().level, LogFormat.JSON: "info"}
"""Default minimum level by format."""


@dataclass(frozen=True, slots=True)
class MetricsTargets:
    """Destinations of a command's metrics when it ends."""

    textfile: str | None = None
    push_url: str | None = None
    push_password: str | None = field(default=None, repr=False)


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --log-format and --log-level, which set up logging and are not passed to the command."""

    @click.option("--log-format", type=click.Choice([str(f) for f in LogFormat]), default="text",
                  show_default=True, help="json: each line on stderr is one JSON object, with "
                  "compaction ids and figures.")  # fmt: skip
    @click.option("--log-level", type=click.Choice(LEVELS),
                  help="Minimum level to log.  [default: "
                  f"{_LEVELS[LogFormat.TEXT]}; with json: {_LEVELS[LogFormat.JSON]}]")  # fmt: skip
    @functools.wraps(command)
    def with_logs(*args: Any, log_format: str, log_level: str | None, **options: Any) -> Any:
        shape = LogFormat(log_format)
        logs.set_up(LogSettings(shape, log_level or _LEVELS[shape]))
        return command(*args, **options)

    return with_logs


def metrics_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --metrics-textfile and --metrics-push, passed to the command as `targets`."""

    @click.option("--metrics-textfile", metavar="FILE.prom", help="Write metrics there at the end, for node "
                  "exporter's textfile collector.")  # fmt: skip
    @click.option("--metrics-push", metavar="URL", help="Push metrics to this Pushgateway at the end; a "
                  "failure is only a warning. The password of a user in the URL comes from the variable "
                  "COMPACTOR_METRICS_PUSH_PASSWORD or from a file.")  # fmt: skip
    @click.option(
        "--metrics-push-password-file",
        metavar="FILE",
        help="File with this password as its only line.",
    )
    @functools.wraps(command)
    def with_targets(
        *args: Any,
        metrics_textfile: str | None,
        metrics_push: str | None,
        metrics_push_password_file: str | None,
        **options: Any,
    ) -> Any:
        password = None
        if metrics_push_password_file is not None and not metrics_push:
            raise UsageError("--metrics-push-password-file needs --metrics-push")
        if metrics_textfile or metrics_push:
            with required(
                Extra.WORKER, "--metrics-textfile" if metrics_textfile else "--metrics-push"
            ):
                from compactor.telemetry.metrics import publish

            if metrics_textfile:
                publish.check_textfile(metrics_textfile)
            if metrics_push:
                publish.check_push(metrics_push)
                password = publish.push_password(metrics_push, metrics_push_password_file)
        targets = MetricsTargets(metrics_textfile, metrics_push, password)
        return command(*args, targets=targets, **options)

    return with_targets


class Telemetry:
    """The telemetry of a command: opens commit logs with metrics and traces as requested."""

    def __init__(self, recorder: Recorder | None, traces: Tracing | None) -> None:
        self.recorder = recorder
        self._traces = traces

    def open_log(self, table: str) -> CommitLog:
        """Opens the commit log of a table that may not exist, with counters of its commits and requests."""
        # Imported here, since pipelines of files need no tables.
        from compactor.cli.tables import open_log

        return open_log(table, self.log_of)

    def log_of(self, store: Store) -> CommitLog:
        """Returns the commit log of a store, as `open_log` does of an address."""
        from compactor.table.commit_log import CommitLog
        from compactor.table.observed_log import ObservedCommitLog

        if self.recorder is not None:
            store = self.recorder.metered(store)
        observers = [each.committed for each in (self.recorder, self._traces) if each is not None]
        if not observers:
            return CommitLog(store)

        def on_commit(commit: CommitReport) -> None:
            for observe in observers:
                observe(commit)

        return ObservedCommitLog(store, on_commit)

    def listener(self, *others: Listener) -> Listeners:
        from compactor.compaction.listener import Listeners

        # Traces come before events, so that log lines about a compaction fall within its span.
        mine = [each for each in (self._traces, self.recorder) if each is not None]
        return Listeners([*mine, *others])

    def begin_compactions(self, driver: Driver) -> None:
        """Initialises a table's metrics before its driver first looks at it."""
        if self.recorder is not None:
            limit_bytes = driver.settings_for(driver.log.latest).memory_limit_bytes
            self.recorder.begin_compactions(driver.url, limit_bytes)

    def record(self, make: Callable[[str], Iterable[Change]], table: str) -> None:
        """Applies the changes that `make` returns for the table's label. Does nothing without metrics."""
        if self.recorder is not None:
            self.recorder.apply(make(table))


@contextmanager
def telemetry(
    command: str, table: str, targets: MetricsTargets, *, is_fleet: bool = False
) -> Iterator[Telemetry]:
    """Sets up the telemetry of one run of a command, and publishes metrics when the block ends or raises.

    table: label of the metrics, an address or a pipeline's file. is_fleet: it is a file of many tables, each
    of which has metrics of its own.
    """
    with traces_of_environment() as traces:
        if targets == MetricsTargets():
            yield Telemetry(None, traces)
            return
        from compactor.telemetry.metrics import mapping
        from compactor.telemetry.metrics.recorder import Recorder
        from compactor.telemetry.metrics.registry import MetricsRegistry

        registry = MetricsRegistry()
        told = Telemetry(Recorder(registry.apply, is_of_run=True), traces)
        started, succeeded = time.monotonic(), False
        try:
            yield told
            succeeded = True
        except click.exceptions.Exit as end:
            succeeded = end.exit_code == 0
            raise
        finally:
            assert told.recorder is not None
            told.recorder.count_requests()
            seconds = time.monotonic() - started
            made = functools.partial(
                mapping.of_run,
                command=command,
                succeeded=succeeded,
                seconds=round(seconds, 3),
                now_unix_seconds=time.time(),
            )
            told.record(made, table)
            # A Pushgateway gives all metrics of a group its labels.
            group = {"command": command, "fleet" if is_fleet else "table": table}
            _publish(registry.apply, registry.prometheus, targets, group, table)


def _publish(
    apply: Callable[[Iterable[Change]], None],
    registry: Any,
    targets: MetricsTargets,
    group: Mapping[str, str],
    table: str,
) -> None:
    """Publishes metrics. A failure is only a warning, since the work is done."""
    from compactor.telemetry.metrics import publish
    from compactor.telemetry.metrics.catalog import LAST_SUCCESS

    if targets.push_url:
        try:
            publish.push(targets.push_url, registry, group, targets.push_password)
        except publish.PushError as error:
            to = publish.shown_url(targets.push_url)
            warn(f"--metrics-push {to}: metrics were not pushed ({error})")
    if targets.textfile:
        try:
            if registry.get_sample_value(LAST_SUCCESS.name, {"table": table}) is None:
                apply(
                    change
                    for change in publish.last_successes(targets.textfile)
                    if registry.get_sample_value(change.metric.name, change.by_label()) is None
                )
            publish.write_textfile(targets.textfile, registry)
        except CompactorError as error:
            warn(f"--metrics-textfile: metrics were not written ({error.message})")


@contextmanager
def traces_of_environment() -> Iterator[Tracing | None]:
    """Yields traces if `OTEL_*` variables enable them, else None. Warns if a prerequisite is missing."""
    if not tracing.is_wanted():
        yield None
        return
    try:
        traces = Tracing(tracing.provider_of())
    except TracingUnavailableError as error:
        warn(f"no traces: {error}")
        yield None
        return
    with ExitStack() as stack:
        stack.callback(traces.close)
        yield traces
