"""Shows a backlog of compactions in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from compactor.cli.output import human_bytes
from compactor.common.counts import counted
from compactor.common.message import Message
from compactor.common.ranges import range_text
from compactor.compaction.backlog import Backlog
from compactor.settings.units import duration_text


def backlog_text(found: Backlog) -> str:
    """Returns one line about a backlog."""
    if found.is_caught_up:
        return f"compacted through version {found.compacted_through}, the latest: nothing is due"
    return f"compacted through version {found.compacted_through} of {found.version}; {_due(found)}"


def backlog_lines(found: Backlog) -> list[str]:
    """Returns the lines about a backlog, with one for each compaction that runs or is held up."""
    if found.is_caught_up:
        return [backlog_text(found)]
    lines = [f"compacted through version {found.compacted_through} of {found.version}"]
    lines.append(f"  {_due(found)}")
    for each in found.running:
        if each.has_ended:
            lines.append(f"  {each.owner} has ended: the next worker takes over")
            continue
        lines.append(
            f"  {each.owner} has compacted some {human_bytes(each.done_bytes)} of "
            f"{human_bytes(each.bytes)} ({counted(each.fragments, 'fragment')} to level "
            f"{each.output_level}) in {duration_text(max(1.0, each.seconds))}"
        )
    return [*lines, *(f"  held up: {line}" for line in held_lines(found.held_up))]


def held_lines(lines: Sequence[str | Message]) -> list[str | Message]:
    """Returns each line once, with the number of those that say the same."""
    return [
        line if count == 1 else Message(line, f" ({count - 1:,} more like it)")
        for line, count in Counter(lines).items()
    ]


def _due(found: Backlog) -> str:
    left = ""
    if found.running:
        low, high = found.seconds_left.low, found.seconds_left.high
        left = f", {range_text(duration_text(max(1.0, low)), duration_text(max(1.0, high)))} left"
    return (
        f"due: {counted(found.due_fragments, 'fragment')} ({human_bytes(found.due_bytes)}), "
        f"{counted(len(found.running), 'compaction')} running, {found.waiting_compactions} waiting{left}"
    )
