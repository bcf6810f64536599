"""Says in a sentence how a table is, and what to do next. Pure."""

from __future__ import annotations

import shlex
from typing import Final

from compactor.common.counts import counted
from compactor.planner.debt import Pressure
from compactor.report.data import Headline, Pending, Verdict
from compactor.report.text import bytes_text

_MANY_DELETED: Final = 0.2
"""Share of deleted rows from which they are worth a compaction."""


def verdict(table: str, head: Headline, pending: Pending) -> Verdict:
    """Returns what matters most: what is damaged, what lags, what is due, in this order."""
    place = shlex.quote(table)
    due = sum(row.fragments for row in pending.planned)
    size = bytes_text(sum(row.size_bytes for row in pending.planned))
    if pending.quarantine:
        count = len(pending.quarantine)
        waits = ""
        if pending.held_fragments:
            waits = (
                f", and {counted(pending.held_fragments, 'other waits', 'others wait')} for that"
            )
        return Verdict(
            f"{counted(count, 'fragment is', 'fragments are')} in quarantine{waits}: reads that need "
            f"{'it' if count == 1 else 'them'} may fail.",
            f"compactor verify {place}",
            is_bad=True,
        )
    if head.pressure != Pressure.HEALTHY:
        writers = "wait" if head.pressure == Pressure.STOP else "slow down"
        at_work = f"{counted(len(pending.running), 'compaction runs', 'compactions run')}"
        return Verdict(
            f"Compactions lag behind: the debt is {head.debt_score:.2f}, so writers should {writers}. "
            f"{at_work if pending.running else 'No worker compacts the table'}.",
            f"compactor compact {place}",
            is_bad=True,
        )
    if pending.planned and not pending.running:
        return Verdict(
            f"{counted(due, 'fragment is', 'fragments are')} due ({size}), and no worker compacts the table.",
            f"compactor compact {place}",
        )
    if pending.running:
        fragments = sum(row.fragments for row in pending.running)
        return Verdict(
            f"Compactions keep up: {counted(fragments, 'fragment is', 'fragments are')} being compacted.",
            f"compactor wait {place}",
        )
    if pending.blocked:
        return Verdict(
            f"Nothing can be compacted now: {pending.blocked[0]}",
            f"compactor compact {place} --explain",
        )
    if head.deleted_rows > _MANY_DELETED * (head.rows + head.deleted_rows):
        return Verdict(
            f"Nothing is due, but {counted(head.deleted_rows, 'deleted row')} are still stored.",
            f"compactor compact {place} --strategy full",
        )
    return Verdict(
        "All is compacted: nothing is due.",
        f"compactor vacuum {place} --dry-run",
    )
