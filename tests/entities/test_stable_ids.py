"""Ids that stay when clusters gain or lose members (`identity: stable`)."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.cli.main import run as command
from compactor.entities.entity_merge import merged_batches
from compactor.errors import UsageError
from compactor.read.scan import scan
from compactor.settings.compaction import Strategy as Compaction
from compactor.table.commit_log import CommitLog
from tests.entities.model import Model, is_deleted
from tests.entities.support import Entity, entities_in, rows, run, spec, write
from tests.support.memory_store import MemoryStore
from tests.support.tables import compact_table
from tests.support.wording import refuses

RULES = [["eq", "a.k", "b.k"], ["eq", "a.k", "a.k"], ["eq", "b.k", "b.k"]]
STABLE = spec("A a", "B b", version=2, equality=RULES, identity="stable")


class Table:
    """A table after runs, and the ids that its rows have."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, MemoryStore()

    def after(self, chosen: Any = STABLE, full: bool = False, **links: Any) -> dict[str, list[str]]:
        """Runs with entities such as `a1=[1, 2]`, which are one if they have a number in common.

        Returns the `$ids` of living entities by id. None marks a deleted entity.
        """
        found: dict[str, list[Entity]] = {"A": [], "B": []}
        for name, k in links.items():
            entity = {"_id": name, "k": k} if k is not None else {"_id": name, "_deleted": True}
            found[name[0].upper()].append(entity)
        write(self.folder, found)
        run(chosen, self.store, self.folder, full=full)
        return {i: row["$ids"] for i, row in self.rows().items() if not row.get("_deleted")}

    def rows(self) -> dict[str, Entity]:
        return {row["_id"]: row for row in rows(self.store)}

    @property
    def replaced(self) -> set[str]:
        return {i for i, row in self.rows().items() if row.get("$replaced")}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def test_a_fresh_table_has_the_id_of_each_first_member(table: Table) -> None:
    assert table.after(a1=1, a2=2, b1=2, b2=[2, 3]) == {"0|a1": ["a1"], "0|a2": ["a2", "b1", "b2"]}


def test_an_id_stays_when_members_come_and_go(table: Table) -> None:
    table.after(b1=1, b2=2)
    assert table.after(a1=1, b1=1, b2=2) == {"1|b1": ["a1", "b1"], "1|b2": ["b2"]}
    assert table.after(a1=1, b2=2) == {"1|b1": ["a1"], "1|b2": ["b2"]}
    assert table.after(a1=1, a2=1, b2=2) == {"1|b1": ["a1", "a2"], "1|b2": ["b2"]}
    assert table.replaced == set()


def test_of_clusters_that_merge_the_id_of_the_oldest_member_stays(table: Table) -> None:
    table.after(b1=1)
    table.after(a1=2, b1=1)
    assert table.after(a1=[1, 2], b1=1) == {"1|b1": ["a1", "b1"]}
    assert table.replaced == {"0|a1"}


def test_of_a_cluster_that_splits_the_part_of_the_oldest_member_keeps_the_id(table: Table) -> None:
    table.after(b1=1)
    table.after(a1=1, a2=1, b1=1)
    assert table.after(a1=2, a2=2, b1=1) == {"1|b1": ["b1"], "0|a1": ["a1", "a2"]}
    assert table.replaced == set()


def test_a_part_takes_back_the_id_that_its_oldest_member_had(table: Table) -> None:
    table.after(a1=1, b1=2)
    table.after(a1=1, b1=1)
    assert table.replaced == {"1|b1"}
    assert table.after(a1=1, b1=2) == {"0|a1": ["a1"], "1|b1": ["b1"]}
    table.after(b1=2)
    assert table.after(a1=1, b1=2) == {"0|a1": ["a1"], "1|b1": ["b1"]}


def test_an_id_that_others_have_or_had_is_not_given_again(table: Table) -> None:
    table.after(a1=1)
    table.after(a1=1, a2=1)
    table.after(a1=None, a2=1)
    assert table.after(a1=5, a2=1) == {"0|a1": ["a2"], "0|a1~2": ["a1"]}
    table.after(a2=1)
    table.after(a1=6)
    assert table.replaced == {"0|a1"}
    assert table.after(a1=6, a2=1) == {"0|a1~2": ["a1"], "0|a1": ["a2"]}


def test_a_deleted_member_leaves_the_id_to_those_that_live(table: Table) -> None:
    table.after(a1=1, b1=1)
    assert table.after(a1=None, b1=1) == {"0|a1": ["b1"]}
    assert table.rows()["0|a1~2"]["_deleted"]
    assert table.after(a1=1, b1=1) == {"0|a1": ["a1", "b1"]}
    assert table.after(a1=None, b1=None) == {}
    assert table.after(a1=1, b1=1) == {"0|a1": ["a1", "b1"]}


def test_a_full_run_keeps_ids_and_datasets_may_change_places(table: Table) -> None:
    table.after(b1=1)
    table.after(a1=1, a2=2, b1=1)
    found = table.after(full=True, a1=1, a2=2, b1=1)
    assert found == {"1|b1": ["a1", "b1"], "0|a2": ["a2"]}
    turned = spec("B b", "A a", version=2, equality=RULES, identity="stable")
    assert table.after(turned, full=True, a1=1, a2=2, b1=1) == {
        "1|b1": ["b1", "a1"],
        "0|a2": ["a2"],
    }
    assert table.after(turned, a1=3, a2=2, b1=1) == {"1|b1": ["b1"], "0|a2": ["a2"], "0|a1": ["a1"]}
    one = spec("A a", version=2, equality=RULES[1:2], identity="stable")
    assert table.after(one, full=True, a1=3, a2=2) == {"0|a1": ["a1"], "0|a2": ["a2"]}
    added = spec("A a", "B b", version=2, equality=RULES, identity="stable")
    found = table.after(added, a1=3, a2=2, b1=7)
    assert found == {"0|a1": ["a1"], "0|a2": ["a2"], "2|b1": ["b1"]}


def test_ids_are_short_and_distinct_for_members_with_long_ids(table: Table) -> None:
    long: dict[str, Any] = {f"a{'x' * 5000}{n}": n for n in range(3)}
    found = table.after(**long)
    assert len(found) == 3
    assert max(map(len, found)) == 160
    last = f"a{'x' * 5000}2"
    assert set(table.after(**(long | {last: None, "b1": 2}))) < set(found) | {"1|b1"}
    assert set(table.after(**(long | {"b1": 2}))) <= set(found) | {"1|b1"}


def test_a_table_of_another_identity_gets_the_ids_of_first_members(table: Table) -> None:
    table.after(spec("A a", "B b", version=2, equality=RULES), a1=1, a2=2, b1=2)
    assert table.after(a1=1, a2=2, b1=2) == {"0|a1": ["a1"], "0|a2": ["a2", "b1"]}
    assert table.replaced == {"0|a2|1|b1"}
    table.after(spec("A a", "B b", version=2, equality=RULES), a1=1, a2=2, b1=2)
    assert table.after(a1=1, a2=2, b1=2) == {"0|a1": ["a1"], "0|a2": ["a2", "b1"]}


def test_members_that_came_and_went_end_no_entity(table: Table) -> None:
    strict = spec("A a", "B b", version=2, equality=RULES, identity="stable", min_ended=1)
    links: dict[str, Any] = {f"a{n}": n for n in range(20)}
    table.after(**links)
    write(table.folder, {"A": [{"_id": i, "k": k} for i, k in links.items()],
                         "B": [{"_id": f"b{n}", "k": n} for n in range(20)]})  # fmt: skip
    report = run(strict, table.store, table.folder, allow_changes=False)
    assert (report.changed, report.new, report.ended) == (20, 0, 0)
    write(table.folder, {"B": [{"_id": "b0", "k": list(range(5))}]})
    with refuses(UsageError, "4 of the table's 20"):
        run(spec("A a", "B b", version=2, equality=RULES, identity="stable", min_ended=1,
                 max_ended_percent=19), table.store, table.folder, allow_changes=False)  # fmt: skip


def test_columns_of_members_are_no_properties_and_not_among_the_lines(
    table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    write(table.folder, {"A": [{"_id": "a1", "$members": ["x"], "$since": 7}], "B": []})
    (table.folder / "s.json").write_text(
        json.dumps({"version": 2, "datasets": ["A a"], "identity": "stable"})
    )
    call = ["entity-merge", str(table.folder / "s.json"), "--datasets", str(table.folder)]
    assert command([*call, "--output", str(table.folder / "t"), "--ndjson", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == {"$ids": ["a1"], "_id": "0|a1", "_updated": 0}


def test_rows_of_a_pipeline_have_the_ids_of_a_fresh_table() -> None:
    inputs = [[pa.RecordBatch.from_pydict({"_id": [f"{n}1"], "k": [1]})] for n in "ab"]
    [batch] = merged_batches(STABLE, inputs)
    assert [row["_id"] for row in entities_in(batch)] == ["0|a1"]
    assert "$members" not in batch.schema.names


LINKS = st.none() | st.lists(st.integers(0, 4), max_size=2)
STATES = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("a1", "a2", "a3", "b1", "b2", "b3"), LINKS)
)


def clusters_of(links: Mapping[str, Any]) -> list[tuple[list[str], bool]]:
    """Members by dataset, then id, as `0|a1`, and whether they are deleted."""
    sides = [
        [
            {"_id": i, "_deleted": True} if k is None else {"_id": i, "k": k}
            for i, k in sorted(links.items())
            if i[0] == name
        ]
        for name in "ab"
    ]
    model = Model(list(zip("ab", sides, strict=True)), [(left, right) for _, left, right in RULES])
    return [
        (
            [f"{model.nodes[n][0]}|{model.nodes[n][1]['_id']}" for n in found],
            is_deleted(model.nodes[found[0]][1]),
        )
        for found in model.clusters()
    ]


def by_hand(
    before: Mapping[str, Entity], clusters: Sequence[tuple[list[str], bool]]
) -> dict[str, list[str]]:
    """Finds the ids of clusters: claim by claim, the strongest first.

    before: rows with `members` (name and age, oldest first), and `kind`: 0 living, 1 deleted, 2 replaced.
    """
    claims = []
    for number, (members, deleted) in enumerate(clusters):
        for i, row in before.items():
            of_row = row["members"][:1] if row["kind"] == 2 else row["members"]
            claims += [
                (deleted, row["kind"], age, m, i, number) for m, age in of_row if m in members
            ]
    found: dict[int, str] = {}
    for *_, i, number in sorted(claims):
        if number not in found and i not in found.values():
            found[number] = i
    ages = {m: age for row in before.values() if row["kind"] < 2 for m, age in row["members"]}
    new = {}
    for number, (members, _) in enumerate(clusters):
        if number not in found:
            new[min(members, key=lambda m: (ages.get(m, float("inf")), m))] = number
    used = {*before, *new}
    for base in sorted(new):
        name, number = base, 2
        while name in before or (name != base and name in used):
            name, number = f"{base}~{number}", number + 1
        used.add(name)
        found[new[base]] = name
    return {found[number]: members for number, (members, _) in enumerate(clusters)}


def known(store: MemoryStore) -> dict[str, Entity]:
    """The rows of the table as `by_hand` takes them."""
    log = CommitLog(store)
    if log.refresh().version == 0:
        return {}
    found = {}
    for batch in scan(store, log.current()):
        for row in batch.select(["_id", "_deleted", "$replaced", "$members", "$since"]).to_pylist():
            members = list(zip(row["$members"], row["$since"], strict=True))
            kind = 2 if row["$replaced"] else int(row["_deleted"])
            found[row["_id"]] = {"members": members, "kind": kind}
    return found


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(STATES, st.booleans(), st.booleans()), min_size=2, max_size=6))
def test_ids_of_random_histories_are_those_of_claiming_one_by_one(
    steps: list[tuple[dict[str, Any], bool, bool]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = Table(Path(folder))
        ages: dict[str, int] = {}
        for links, full, compacts in steps:
            before = known(table.store)
            expected = by_hand(before, clusters_of(links))
            table.after(full=full, **links)
            after = known(table.store)
            now = {i: row for i, row in after.items() if row["kind"] < 2}
            assert {i: sorted(m for m, _ in row["members"]) for i, row in now.items()} == expected
            # Nobody is forgotten, and no age changes while an entity is there.
            assert set(after) >= set(before)
            updated = {i: row["_updated"] for i, row in table.rows().items()}
            ages = {m: ages.get(m, updated[i]) for i, row in now.items() for m, _ in row["members"]}
            assert {m: age for row in now.values() for m, age in row["members"]} == ages
            for i, row in after.items():
                assert row["members"] == sorted(row["members"], key=lambda each: (each[1], each[0]))
                if row["kind"] == 2:
                    last = before[i]["members"]
                    assert row["members"] == last[:1]
            if compacts and after:
                compact_table(table.store, strategy=Compaction.FULL)
            objects = dict(table.store.objects)
            table.after(**links)
            assert table.store.objects == objects


@settings(max_examples=50, deadline=None)
@given(STATES, STATES)
def test_an_entity_keeps_its_id_while_its_members_only_come_or_only_go(
    first: dict[str, Any], more: dict[str, Any]
) -> None:
    """Unless its cluster merges with another or splits."""
    with tempfile.TemporaryDirectory() as folder:
        table = Table(Path(folder))
        before = table.after(**first)
        after = table.after(**first | more)
        for name, members in before.items():
            others = {m for other, some in before.items() if other != name for m in some}
            grown = [m for m in after.values() if set(members) <= set(m) and not others & set(m)]
            if grown:
                assert after[name] == grown[0]
