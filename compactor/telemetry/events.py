"""Events of tables, from which `watch` lines and log lines are made."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct, field

from compactor.common.clock import SystemClock
from compactor.common.escaping import one_line
from compactor.common.logs import utc_time
from compactor.common.plain_values import plain_dict
from compactor.compaction.compaction import Compaction
from compactor.compaction.driver import Driver, FinishedCompaction
from compactor.compaction.listener import Listener
from compactor.planner.debt import debt_of

_LOGGED_AS: Final = {"compaction": "compaction_id"}

log = logging.getLogger(__name__)


class Event(Struct, frozen=True):
    """Something that happened to a table."""

    name: str
    values: dict[str, Any]
    """Values that `watch` prints, also as JSON."""
    figures: dict[str, Any] = field(default_factory=dict)
    """Additional values for logs."""
    level: int = logging.INFO


Sink = Callable[[Event], None]


class Events(Listener):
    """A listener that forwards events to all sinks."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks
        self._awaited: set[str] = set()
        self.done = self.void = self.failures = 0

    def say(self, name: str, **values: Any) -> None:
        self.tell(Event(name, values))

    def tell(self, event: Event) -> None:
        for sink in self._sinks:
            sink(event)

    def decided(self, driver: Driver, compactions: Sequence[Compaction]) -> None:
        debt = debt_of(driver.log.latest, driver.policy_for(driver.log.latest))
        for compaction in compactions:
            spec = compaction.spec
            self.say(
                "compacting",
                table=driver.url,
                compaction=compaction.compaction_id,
                reason=spec.reason,
                inputs=len(spec.inputs),
                bytes=spec.size_bytes,
                debt=round(debt.score, 3),
                pressure=str(debt.pressure),
            )

    def finished(self, driver: Driver, finished: FinishedCompaction) -> None:
        outcome = finished.outcome
        values: dict[str, Any] = {
            "table": driver.url,
            "compaction": finished.compaction.compaction_id,
        }
        if finished.is_void:
            self.void += 1
            if finished.void_reason:
                values["reason"] = finished.void_reason
            self.tell(Event("overtaken", values, _figures(finished)))
        elif outcome.failure is not None:
            self.failures += 1
            values |= {
                "attempt": finished.attempt,
                "reason": outcome.failure,
                "quarantined": len(finished.quarantined),
            }
            if finished.retry_seconds is not None:
                values["retry_seconds"] = round(finished.retry_seconds, 1)
            self.tell(Event("failed", values, _figures(finished), logging.WARNING))
        else:
            self.done += 1
            values |= {
                "version": driver.log.latest.version,
                "outputs": len(outcome.outputs),
                "seconds": outcome.report.seconds if outcome.report else None,
                "predicted_seconds": round(finished.predicted.task_seconds.likely, 3),
            }
            self.tell(Event("committed", values, _figures(finished)))

    def looked(self, driver: Driver) -> None:
        """Says once that a table is not there, and once that it has come."""
        is_awaited = driver.log.latest.version == 0
        if is_awaited == (driver.url in self._awaited):
            return
        (self._awaited.add if is_awaited else self._awaited.remove)(driver.url)
        if is_awaited:
            why = "no table here yet: create it by `compactor ingest`, or stop this and correct the address"
            self.tell(Event("waiting", {"table": driver.url, "reason": why}, level=logging.WARNING))
        else:
            self.say("found", table=driver.url, version=driver.log.latest.version)

    def failed(self, driver: Driver, error: Exception, retry_seconds: float) -> None:
        values = {
            "table": driver.url,
            "reason": str(error),
            "retry_seconds": round(retry_seconds, 1),
        }
        self.tell(Event("error", values, level=logging.WARNING))


def _figures(finished: FinishedCompaction) -> dict[str, Any]:
    figures: dict[str, Any] = {"attempt": finished.attempt}
    if finished.outcome.record is not None:
        record = finished.outcome.record
        figures |= {"attempt_id": record.attempt_id, "host": record.host}
    if finished.outcome.report is not None:
        figures |= plain_dict(finished.outcome.report)
    return figures


def to_log(event: Event) -> None:
    """Writes an event to the log."""
    fields = {**event.figures, **event.values}
    log.log(event.level, event.name, extra={_LOGGED_AS.get(k, k): v for k, v in fields.items()})


def as_line(event: Event, *, as_json: bool) -> str:
    """Returns the line of `watch` on stdout."""
    values = event.values
    now = utc_time(SystemClock().now_unix_ms() / 1000)
    if as_json:
        return json.dumps({"time": now, "event": event.name, **values}, ensure_ascii=False)
    return one_line(f"{now} {event.name} " + " ".join(f"{k}={v}" for k, v in values.items()))
