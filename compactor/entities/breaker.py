"""Refuses a run that would end many entities of the table, because an input is probably incomplete."""

from __future__ import annotations

from collections.abc import Sequence

from compactor.entities.datasets import Located
from compactor.entities.entity_report import EntityMergeReport
from compactor.entities.run import EntityRun
from compactor.entities.spec import Dataset
from compactor.entities.state import State
from compactor.errors import UsageError

_ALLOW = "or run with --allow-changes: nothing was written"


def check_gone(
    before: State, datasets: Sequence[Dataset], located: Sequence[Located | None], run: EntityRun
) -> None:
    """Raises `UsageError` if a dataset that the last run found is not there.

    located: of `datasets`, in their order.
    """
    if run.allow_changes:
        return
    there = {dataset.name: at for dataset, at in zip(datasets, located, strict=True)}
    for number, (name, _alias) in enumerate(before.datasets):
        # A dataset may have got another name, but it keeps its position.
        now = name if name in there or run.full else datasets[number].name
        if name in before.found and now in there and there[now] is None:
            raise UsageError(
                f"dataset {now} is not there, and the last run had it: bring it back, {_ALLOW}"
            )


def check_ended(report: EntityMergeReport, run: EntityRun) -> None:
    """Raises `UsageError` if more than the share of the spec would be replaced or deleted, and not just a
    few."""
    share = run.spec.max_ended_percent
    if run.allow_changes or report.ended < run.spec.min_ended:
        return
    if report.ended * 100 <= share * report.living_before:
        return
    percent = report.ended * 100 / report.living_before
    raise UsageError(
        f"{report.ended:,} of the table's {report.living_before:,} living entities would be replaced or "
        f"deleted ({percent:.1f} %), max_ended_percent is {share} and min_ended "
        f"{run.spec.min_ended}: check the datasets and rules, {_ALLOW}"
    )
