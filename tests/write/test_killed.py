"""A process that dies at its commit loses nothing: the table is as before or as after, and whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from compactor import Policy, Strategy, Table
from tests.faults import Crash, Kill
from tests.support.memory_store import MemoryStore
from tests.support.tables import COMMITS, open_table
from tests.write.test_undo import rows_of

State = tuple[list[dict[str, Any]], list[dict[str, Any]]]


def made() -> MemoryStore:
    """A store with a table of a tag, a compaction, and a row of its output deleted since."""
    table = open_table(store := MemoryStore())
    table._ingest(rows_of(0), "k", None)
    table.append(rows_of(5))
    table.tag("reader", keep_later=True)
    table.compact(policy=Policy(strategy=Strategy.FULL))
    table.delete("k = 8")
    return store


def undo(table: Table) -> None:
    [run] = {entry.run for entry in table._snapshot.fragments.all()}
    table.undo(run)


CHANGES: dict[str, Callable[[Table], Any]] = {
    "restore": lambda table: table.restore(version=1),
    "undo": undo,
    "move of a reader": lambda table: table.tag("reader", move=True, keep_later=True),
    "end of a tag": lambda table: table.untag("reader"),
    "overwrite": lambda table: table.overwrite(rows_of(100)),
    "overwrite of some": lambda table: table.overwrite(pa.table({"k": [3]}), where="k = 3"),
    "update": lambda table: table.update("k > 6", {"n": "n + 1"}),
}


def state_of(store: MemoryStore) -> State:
    """The rows and tags that a new process sees."""
    table = open_table(MemoryStore(store.objects))
    rows = table.scan().to_table().sort_by([("k", "ascending"), ("n", "ascending")])
    return rows.to_pylist(), table.tags().to_pylist()


def without_times(state: State) -> State:
    rows, tags = state
    return rows, [{name: tag[name] for name in ("name", "version")} for tag in tags]


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_one_that_dies_at_its_commit_has_done_all_or_nothing(name: str, is_done: bool) -> None:
    change = CHANGES[name]
    store = made()
    before = without_times(state_of(store))
    intact = MemoryStore(dict(store.objects))
    change(open_table(intact))
    after = without_times(state_of(intact))
    assert after != before or name == "undo"
    dying = MemoryStore(store.objects)
    dying.faults.add(Kill(after=is_done), at=COMMITS.first())
    with pytest.raises(Crash):
        change(open_table(dying))
    assert without_times(state_of(store)) == (after if is_done else before)
    if not is_done:
        change(open_table(MemoryStore(store.objects)))
        assert without_times(state_of(store)) == after
    kept = needed(store)
    table = open_table(MemoryStore(store.objects))
    if table.tags().num_rows:
        table.untag("reader")
    table.vacuum(grace_seconds=0, retain_seconds=0)
    left = {key for key in store.objects if key.startswith("data/")}
    assert left == kept
    assert without_times(state_of(store))[0] == after[0]
    assert not open_table(MemoryStore(store.objects)).verify().faults


def needed(store: MemoryStore) -> set[str]:
    """The objects of the newest version."""
    fragments = open_table(MemoryStore(store.objects))._snapshot.fragments
    return {key for entry in fragments.all() for key in entry.objects}
