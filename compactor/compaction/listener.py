"""Listeners, which are told of each step of the worker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compactor.compaction.compaction import Compaction
    from compactor.compaction.driver import Driver, FinishedCompaction


class Listener:
    """A listener, which is told what happens, for users and logs; does nothing by default."""

    def decided(self, driver: Driver, compactions: Sequence[Compaction]) -> None: ...

    def finished(self, driver: Driver, finished: FinishedCompaction) -> None: ...

    def failed(self, driver: Driver, error: Exception, retry_seconds: float) -> None:
        """Is told that a step of a table failed as a whole, as when its store is unreachable."""

    def looked(self, driver: Driver) -> None:
        """Is told that the log was read or written; `driver.log.latest` is version 0 without a table."""

    def turned(self) -> None:
        """Is told that the loop made one more round: it is alive."""


class Listeners(Listener):
    """Several listeners as one, told in their order."""

    def __init__(self, listeners: Iterable[Listener]) -> None:
        self._all = tuple(listeners)

    def decided(self, driver: Driver, compactions: Sequence[Compaction]) -> None:
        for each in self._all:
            each.decided(driver, compactions)

    def finished(self, driver: Driver, finished: FinishedCompaction) -> None:
        for each in self._all:
            each.finished(driver, finished)

    def failed(self, driver: Driver, error: Exception, retry_seconds: float) -> None:
        for each in self._all:
            each.failed(driver, error, retry_seconds)

    def looked(self, driver: Driver) -> None:
        for each in self._all:
            each.looked(driver)

    def turned(self) -> None:
        for each in self._all:
            each.turned()
