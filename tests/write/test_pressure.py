"""Writers slow down, wait and go on by the compaction debt, whoever calls them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from compactor import IngestOptions, Reaction, Table
from compactor.cli.main import run
from compactor.common.clock import SystemClock
from compactor.errors import BackPressureError
from compactor.planner.debt import Debt
from compactor.rows.policy import RowKind, RowPolicy
from compactor.settings.properties import changed
from compactor.stores.local import LocalStore
from compactor.table import commit_log
from compactor.table.commit_log import CommitLog
from compactor.write.back_pressure import BackPressure
from tests.compaction.test_driver import World, outcome
from tests.spark.test_data_source_write import Job, found, numbers
from tests.support.tables import compact_table
from tests.support.wording import refuses

THRESHOLDS = {"level0_trigger_runs": 2, "slow_runs": 2, "stop_runs": 4}


def pressure(said: list[Debt] | None = None, reaction: str = "wait") -> BackPressure:
    told = changed((), {**THRESHOLDS, "back_pressure": reaction})
    heard = [] if said is None else said
    return BackPressure(told, on_debt=lambda _log, debt: heard.append(debt), max_wait_seconds=60)


def test_a_healthy_table_takes_writes_at_once() -> None:
    world = World()
    before = world.clock.now_ms
    world.ingest(0, 9)
    assert pressure().admit(world.log()) == world.snapshot()
    assert world.clock.now_ms == before


def test_the_more_debt_the_longer_the_pause() -> None:
    world = World()
    pauses = []
    for _ in range(3):
        world.ingest(0, 9)
        before = world.clock.now_ms
        pressure().admit(world.log())
        pauses.append(world.clock.now_ms - before)
    assert pauses == [0, 0, 2500]


def test_a_writer_waits_until_compactions_have_caught_up() -> None:
    world = World()
    for _ in range(5):
        world.ingest(0, 9)
    log = world.log()
    sleep, naps = world.clock.sleep, []

    def compact_after_three(seconds: float) -> None:
        sleep(seconds)
        naps.append(seconds)
        if len(naps) == 3:
            driver = world.driver("one")

            driver.commit_outcomes([outcome(c) for c in driver.decide(1)])

    world.clock.sleep = compact_after_three  # type: ignore[method-assign]
    said: list[Debt] = []
    assert pressure(said).admit(log) == world.snapshot()
    assert naps == [2.0, 2.0, 2.0]
    assert [debt.level0_runs for debt in said] == [5]


def test_a_writer_does_not_wait_for_ever() -> None:
    world = World()
    for _ in range(5):
        world.ingest(0, 9)
    with refuses(BackPressureError):
        pressure().admit(world.log())


def test_who_only_wants_a_warning_goes_on() -> None:
    world = World()
    for _ in range(5):
        world.ingest(0, 9)
    before = world.clock.now_ms
    said: list[Debt] = []
    for reaction in ("warn", "off"):
        assert pressure(said, reaction).admit(world.log()) == world.snapshot()
    assert world.clock.now_ms == before
    assert len(said) == 1


# --- every front ---


class Sleepless(SystemClock):
    """A clock that waits for nothing."""

    def sleep(self, seconds: float) -> None: ...


class CompactingClock(Sleepless):
    """A clock at whose third nap somebody compacts the table."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.naps: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        if len(self.naps) == 3:
            compact_table(LocalStore(self._url))


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A table above the threshold at which its writers stop and wait."""
    url = str(tmp_path / "t")
    quiet = IngestOptions(back_pressure=Reaction.OFF, rows=RowPolicy(RowKind.LAST))
    Table.create(url, numbers(0), "n", quiet)
    for first in range(1, 5):
        Table.open(url).append(numbers(first), quiet)
    Table.open(url).alter(properties={**THRESHOLDS, "back_pressure": "wait"})
    return url


@pytest.fixture
def clock(url: str, monkeypatch: pytest.MonkeyPatch) -> CompactingClock:
    clock = CompactingClock(url)
    monkeypatch.setattr(commit_log, "SystemClock", lambda: clock)
    return clock


def file_of(url: str) -> str:
    path = f"{url}.parquet"
    pq.write_table(numbers(5), path)
    return path


def ingest(url: str, *options: str) -> None:
    if code := run(["ingest", url, file_of(url), *options]):
        assert code == BackPressureError.exit_code
        raise BackPressureError("the command has told why")


def stream(url: str) -> None:
    Job(url, numbers(5), stream=True, app_id="a").write().commit(0)


WRITERS: dict[str, Callable[[str], Any]] = {
    "append": lambda url: Table.open(url).append(numbers(5)),
    "append a file": lambda url: Table.open(url).append(file_of(url)),
    "upsert": lambda url: Table.open(url).upsert(numbers(5)),
    "overwrite": lambda url: Table.open(url).overwrite(numbers(5), where="n >= 5"),
    "ingest": ingest,
    "Spark batch": lambda url: Job(url, numbers(5)).write().commit(),
    "Spark stream": stream,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_writer_waits_by_the_property_of_the_table(
    name: str, url: str, clock: CompactingClock
) -> None:
    WRITERS[name](url)
    assert clock.naps[:3] == [2.0, 2.0, 2.0]
    assert len(clock.naps) == 3
    assert found(url) == list(range(11))


@pytest.mark.parametrize("name", WRITERS)
def test_no_writer_adds_rows_if_nobody_compacts(
    name: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_log, "SystemClock", Sleepless)
    before = Table.open(url).version
    with pytest.raises(BackPressureError):
        WRITERS[name](url)
    assert Table.open(url).version == before


def test_each_front_is_told_how_to_write_all_the_same(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_log, "SystemClock", Sleepless)
    with refuses(BackPressureError, "options.back_pressure warn"):
        WRITERS["append"](url)
    with refuses(BackPressureError, "write with back_pressure warn"):
        WRITERS["Spark batch"](url)


def test_what_a_writer_is_told_counts_more_than_the_table(url: str, clock: CompactingClock) -> None:
    Table.open(url).append(numbers(5), IngestOptions(back_pressure=Reaction.WARN))
    ingest(url, "--back-pressure", "off")
    Job(url, numbers(5), back_pressure="warn").write().commit()
    Job(url, numbers(5), stream=True, app_id="a", back_pressure="off").write().commit(0)
    assert clock.naps == []


def test_an_overwrite_of_all_rows_waits_for_nothing(url: str, clock: CompactingClock) -> None:
    Table.open(url).overwrite(numbers(20))
    assert clock.naps == []


def test_a_new_table_keeps_the_reaction_that_its_first_writer_was_told(tmp_path: Path) -> None:
    url = str(tmp_path / "new")
    Job(url, numbers(0), sort_by="n", back_pressure="wait").write().commit()
    assert CommitLog(LocalStore(url)).refresh().properties == (("back_pressure", "wait"),)


def test_a_warning_comes_once_for_each_state_of_a_table(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "compactor")
    table = Table.open(url)
    append = partial(table.append, options=IngestOptions(back_pressure=Reaction.WARN))

    def said() -> list[str]:
        texts = [record.getMessage().partition(": ")[2] for record in caplog.records]
        caplog.clear()
        return [text[: text.index(";")] for text in texts]

    append(numbers(5))
    append(numbers(6))
    assert said() == ["compaction debt 1.25 (writers should stop): 5 sorted runs at level 0"]
    table.compact()
    append(numbers(7))
    assert said() == []
    append(numbers(8))
    assert said() == ["compaction debt 0.50 (writers should slow down): 2 sorted runs at level 0"]
