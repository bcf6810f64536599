"""Ids that were replaced stay for readers to follow, and leave the table after its retention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from compactor.cli.main import run as command
from compactor.errors import UsageError
from compactor.read.scan import scan
from compactor.settings.compaction import Strategy
from compactor.table.commit_log import CommitLog
from tests.entities.support import Entity, by_id, rows, run, spec, write
from tests.support.clocks import Ago
from tests.support.memory_store import MemoryStore
from tests.support.tables import compact_table
from tests.support.wording import refuses, says

DAY_SECONDS = 86_400
CHOSEN = spec("A a", equality=[["eq", "a.k", "a.k"]], version=2)
TOGETHER: list[Entity] = [{"_id": "1", "k": 1}, {"_id": "2", "k": 1}, {"_id": "3", "k": 3}]
APART: list[Entity] = [{"_id": "1", "k": 1}, {"_id": "2", "k": 2}, {"_id": "3", "k": 3}]
OLD = "0|1|0|2"


class Days:
    """A table that runs wrote some days ago, and which compactions take today."""

    def __init__(self, folder: Path) -> None:
        self.store, self.folder = MemoryStore(), folder

    def merge(self, ago: float, entities: Sequence[Entity], days: float | None = None) -> Any:
        """days: the retention that the run asks for."""
        write(self.folder, {"A": entities})
        retention = None if days is None else days * DAY_SECONDS
        return run(
            CHOSEN,
            self.store,
            self.folder,
            clock=Ago(ago),
            tombstone_retention_seconds=retention,
        )

    def compact(self) -> None:
        compact_table(self.store, strategy=Strategy.FULL)

    def ids(self) -> list[str]:
        return [row["_id"] for row in rows(self.store)]


@pytest.fixture
def days(tmp_path: Path) -> Days:
    return Days(tmp_path)


def test_a_replaced_id_leaves_with_a_compaction_after_the_retention(days: Days) -> None:
    days.merge(40, TOGETHER, 30)
    days.merge(31, APART)
    assert OLD in days.ids()
    days.compact()
    assert OLD not in days.ids()
    fresh = MemoryStore()
    run(CHOSEN, fresh, days.folder)
    assert by_id(rows(days.store)) == by_id(rows(fresh))
    assert days.merge(0, APART).unchanged == 3


def test_a_replaced_id_stays_until_then(days: Days) -> None:
    days.merge(40, TOGETHER, 30)
    days.merge(29, APART)
    days.compact()
    assert OLD in days.ids()


def test_an_older_row_of_a_removed_id_does_not_come_back(days: Days) -> None:
    days.merge(90, TOGETHER, 30)
    days.merge(80, APART)
    days.merge(70, TOGETHER)
    days.merge(60, APART)
    days.compact()
    assert days.ids() == ["0|1", "0|2", "0|3"]


def test_an_id_that_lives_again_stays(days: Days) -> None:
    days.merge(90, TOGETHER, 30)
    days.merge(80, APART)
    assert days.merge(70, TOGETHER).new == 1
    days.compact()
    assert set(days.ids()) == {OLD, "0|3"}


def test_without_a_retention_replaced_ids_stay_for_ever(days: Days) -> None:
    days.merge(9_000, TOGETHER)
    days.merge(8_000, APART)
    days.compact()
    assert OLD in days.ids()


def test_the_table_remembers_a_retention_until_a_run_names_another(days: Days) -> None:
    days.merge(90, TOGETHER, 30)
    days.merge(50, APART, 60)
    days.compact()
    assert OLD in days.ids()
    version = days.merge(3, APART, math.inf).version
    assert CommitLog(days.store).refresh().table.ttl is None
    assert days.merge(2, APART, math.inf).version == version
    assert days.merge(1, APART).version == version


def test_deleted_entities_that_their_dataset_still_has_stay(days: Days) -> None:
    days.merge(90, [*TOGETHER, {"_id": "4", "_deleted": True}], 30)
    days.merge(60, [*APART, {"_id": "4", "_deleted": True}])
    days.compact()
    assert days.ids() == ["0|1", "0|2", "0|3", "0|4"]


def test_rows_say_when_they_were_replaced_and_no_others_do(days: Days) -> None:
    days.merge(2, TOGETHER)
    before = Ago(1).now_unix_ms()
    days.merge(1, APART)
    after = Ago(1).now_unix_ms()
    found = {
        row["_id"]: row["$replaced_at"]
        for batch in scan(days.store, CommitLog(days.store).refresh())
        for row in batch.to_pylist()
    }
    assert before <= found.pop(OLD).timestamp() * 1_000 <= after
    assert set(found.values()) == {None}


@pytest.mark.parametrize("retention", ["0s", "0.5s"])
def test_a_retention_of_less_than_a_second_is_refused_before_anything_is_read(
    retention: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "t"
    call = ["entity-merge", str(tmp_path / "none.yaml"), "--output", str(table)]
    assert command([*call, "--tombstone-retention", retention]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "--tombstone-retention" in line
    says(line)
    assert not table.exists()


@pytest.mark.parametrize("seconds", [0, 0.5, math.nan, 1e300, "30d"])
def test_a_run_refuses_a_retention_that_no_table_can_hold(seconds: Any, tmp_path: Path) -> None:
    store = MemoryStore()
    with refuses(UsageError, "tombstone_retention_seconds"):
        run(CHOSEN, store, tmp_path, tombstone_retention_seconds=seconds)
    assert CommitLog(store).refresh().version == 0
