"""Publishes a table whenever it has a new version, in a thread beside the worker that compacts it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from compactor.common.foreign import shown
from compactor.common.second_tries import backoff_seconds
from compactor.compaction.driver import Driver
from compactor.compaction.listener import Listener
from compactor.errors import CompactorError, JobError
from compactor.lakes.publish import Publisher
from compactor.lakes.publish_report import PublishReport
from lsm_fragment.errors import FormatError

_FIRST_PAUSE_SECONDS: Final = 2.0
_MAX_PAUSE_SECONDS: Final = 60.0


class Following(Listener):
    """A listener that lets a thread publish. The worker never waits for it.

    A publication that the end of the process interrupts is continued by the next.
    """

    def __init__(
        self,
        open_publisher: Callable[[], Publisher],
        on_done: Callable[[PublishReport], None],
        on_failure: Callable[[Exception, float], None],
    ) -> None:
        """open_publisher: opens a publisher for the thread alone, once there is a table. on_done, on_failure:
        are called in the thread; a failed publication is tried again after so many seconds."""
        self._open = open_publisher
        self._on_done, self._on_failure = on_done, on_failure
        self._seen = 0
        self._is_due = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publish", daemon=True)
        self._thread.start()

    def looked(self, driver: Driver) -> None:
        version = driver.log.latest.version
        if version != self._seen:
            self._seen = version
            self._is_due.set()

    def close(self) -> None:
        """Lets the thread end after what it is publishing. Does not wait for it."""
        self._is_over.set()
        self._is_due.set()

    def _run(self) -> None:
        publisher: Publisher | None = None
        failures = 0
        while self._is_due.wait() and not self._is_over.is_set():
            self._is_due.clear()
            try:
                publisher = publisher or self._open()
                report = publisher.publish()
            except Exception as error:  # noqa: BLE001 - a library's may go away with the table's next version
                failures += 1
                seconds = backoff_seconds(failures, _FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
                is_ours = isinstance(error, CompactorError | FormatError)
                self._on_failure(error if is_ours else JobError(shown(error)), seconds)
                self._is_over.wait(seconds)
                self._is_due.set()
                continue
            failures = 0
            self._on_done(report)
