"""The command line in a process that dies where CRASH_AT says: `python -m tests.crash.child compact ...`."""

from __future__ import annotations

import os

from compactor.stores import open as opening
from compactor.stores.base import Store
from compactor.table import commit_log, vacuum
from tests.crash.points import Point
from tests.faults.store import FaultyStore


def main() -> None:
    point = os.environ.get("CRASH_AT")
    if point:
        original = opening.open_store
        faults = Point.parse(point).faults()

        def open_killing(url: str) -> Store:
            return FaultyStore(original(url), faults)

        # Before anything else imports it by name.
        opening.open_store = open_killing  # type: ignore[assignment]
    # Few commits are enough for checkpoints, and for log files to be removed.
    for module, name, value in (
        (commit_log, "_CHECKPOINT_VERSIONS", 5),
        (commit_log, "_MAX_CHECKPOINT_VERSIONS", 5),
        (vacuum, "LOG_GRACE_SECONDS", 0),
    ):
        setattr(module, name, value)

    from compactor.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
