"""Chooses where due compactions run: in the process that asks, or on Spark. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from compactor.common.counts import counted
from compactor.planner.estimate import Estimate

SPARK_START_SECONDS: Final = 10.0
"""A session on this machine takes this long to start (docs/decisions/0116)."""
_THREADS_GAIN: Final = 1.5
"""A merge alone on several cores is faster than on one by this factor (docs/explanation/benchmarks.md)."""


class Place(Struct, frozen=True):
    """Where compactions run, and why, for users."""

    is_on_spark: bool
    why: str


def place_of(predicted: Sequence[Estimate], *, slots: int, lacks: str | None) -> Place:
    """Returns the place where these compactions end first.

    In one process they run one after the other, each by several threads; on Spark side by side, each by one,
    once Spark has started. slots: how many compactions Spark would run at a time. lacks: why Spark
    can't start; None if it can.
    """
    seconds = [max(e.cpu_seconds.likely, e.task_seconds.likely) for e in predicted]
    work = sum(seconds)
    size = f"{counted(len(seconds), 'compaction')}, {_about(work)} of work"
    alone = work / _THREADS_GAIN if slots > 1 else work
    on_spark = SPARK_START_SECONDS + max(max(seconds, default=0.0), work / slots)
    if alone <= on_spark:
        return Place(False, f"in this process: {size}, too little for a start of Spark (--master)")
    if lacks is not None:
        return Place(False, f"in this process, since {lacks}: {size}")
    return Place(True, f"on Spark, {slots:,} at a time: {size} (not with --master in-process)")


def _about(seconds: float) -> str:
    return "less than 1 s" if seconds < 1 else f"about {seconds:,.0f} s"
