"""Says how often a table's log is asked for news. Pure."""

from __future__ import annotations

from typing import Final

_SHARE_OF_QUIET: Final = 0.05
"""Ask again after this share of the time for which nothing has changed: news is late by 5% of that."""


def poll_seconds(quiet_seconds: float, shortest: float, longest: float) -> float:
    """Returns the pause until a log is asked again.

    quiet_seconds: the time since the log was last seen to change. A table that changes is asked every
    `shortest` seconds, one at rest less and less often, down to every `longest`.
    """
    return max(shortest, min(longest, quiet_seconds * _SHARE_OF_QUIET))
