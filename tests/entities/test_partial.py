"""Runs that merge anew only what changes touch leave the table that a run over all entities leaves."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.cli.main import run as command
from compactor.entities.comparing import NotProvenError, matched
from compactor.entities.dataset_rows import rows_in
from compactor.entities.entity_merge import EntityMerge
from compactor.entities.entity_report import EntityMergeReport
from compactor.entities.run import EntityRun
from compactor.entities.spec import EntityMergeSpec
from compactor.errors import InputError, JobError, UsageError
from compactor.read.scan import scan
from compactor.settings.compaction import Strategy as Compaction
from compactor.settings.vacuum import VacuumSettings
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.vacuum import vacuum
from compactor.write.delete import delete_rows
from tests.entities.support import rows, run, spec, write
from tests.entities.test_against_model import MIXED, ONE_TYPE, STRATEGIES, SURVIVORS
from tests.faults import Crash, Kill, calls
from tests.support.memory_store import MemoryStore
from tests.support.tables import compact_table
from tests.support.wording import refuses, says

NAMES = ("A a", "B b", "C c")
ALWAYS: dict[str, Any] = {"max_looked_at": 1.0}


class LaterClock:
    """A clock by which every file was last changed long ago."""

    def now_unix_ms(self) -> int:
        return 4_000_000_000_000

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing waits")


LATER: dict[str, Any] = {**ALWAYS, "clock": LaterClock()}
NEVER: dict[str, Any] = {"max_looked_at": 0.0, "clock": LaterClock()}


def contents(store: MemoryStore) -> list[dict[str, Any]]:
    """All columns of the table as a reader sees it, with `_updated` and `$signature`."""
    log = CommitLog(store)
    if log.refresh().version == 0:
        return []
    return [row for batch in scan(store, log.current()) for row in batch.to_pylist()]


def figures(report: EntityMergeReport) -> dict[str, Any]:
    """What a report says of all entities, however the run went."""
    names = "entities_read clusters new changed replaced unchanged living_before ended next_updated"
    values = {name: getattr(report, name) for name in names.split()}
    return {**values, "sizes": report.sizes, "merged": report.merged, "warnings": report.warnings}


class Twins:
    """Two tables of the same datasets: one of partial runs, the other of runs over all entities."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.partial, self.whole = MemoryStore(), MemoryStore()
        self._written: dict[str, Any] = {}
        self._time = 1_000_000_000

    def put(self, **datasets: Any) -> None:
        """Writes the datasets that have changed."""
        for name, entities in datasets.items():
            if self._written.get(name) != json.dumps(entities):
                write(self.folder, {name: entities})
                self._time += 1
                os.utime(self.folder / f"{name}.ndjson", (self._time, self._time))
                self._written[name] = json.dumps(entities)

    def run(self, chosen: EntityMergeSpec, **how: Any) -> EntityMergeReport:
        """Runs both, and compares tables and reports."""
        found = run(chosen, self.partial, self.folder, **{**LATER, **how})
        expected = run(chosen, self.whole, self.folder, **{**how, **NEVER})
        assert figures(found) == figures(expected)
        assert contents(self.partial) == contents(self.whole)
        return found


def unique(prefix: str, values: Any) -> Any:
    entity = st.fixed_dictionaries(
        {"_id": st.sampled_from("12345").map(lambda n: prefix + n)},
        optional={
            **values,
            "$ids": st.sampled_from([None, [], ["q1"], ["q2", "q1"]]),
            "_deleted": st.sampled_from([True, False, False]),
        },
    )
    return st.lists(entity, max_size=5, unique_by=lambda e: e["_id"])


DATASETS = st.one_of(
    *(
        st.fixed_dictionaries({name: unique(name.lower(), values) for name in "ABC"})
        for values in (MIXED, ONE_TYPE)
    )
)
RULES = st.lists(
    st.sampled_from(
        [
            ("a.k", "b.k"),
            ("a.k", "b.l"),
            (["lower", "a.k"], "c.l"),
            ("a.$ids", "b.$ids"),
            ("a.k", "a.k"),
            ("b.k", "b.l"),
            ("c.k", "c.k"),
            (["concat", "a.k", ["literal", ""]], ["string", "b.k"]),
            (["and", "a.k", "a.l"], ["and", "b.k", "b.l"]),
            (["if", "a.k", ["literal", "x"]], ["if", "c.k", ["literal", "x"]]),
        ]
    ),
    max_size=3,
)
IDENTITIES = st.sampled_from(["composite", "first"])
STEPS = st.lists(
    st.tuples(DATASETS, st.sampled_from(["all", "A", "B", "C", "order"]), st.booleans()),
    min_size=2,
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, RULES, STRATEGIES, SURVIVORS, IDENTITIES)
def test_every_history_leaves_the_rows_of_runs_over_all_entities(
    steps: Any, rules: Any, strategy: str, survivors: Any, identity: str
) -> None:
    how = {"strategy": strategy, "survivors": survivors, "identity": identity}
    chosen = spec(*NAMES, equality=[["eq", *rule] for rule in rules], version=2, **how)
    with tempfile.TemporaryDirectory() as folder:
        twins = Twins(Path(folder))
        now: dict[str, Any] = {name: [] for name in "ABC"}
        for datasets, what, compacts in steps:
            if what == "order":
                now = {name: entities[::-1] for name, entities in now.items()}
            elif what == "all":
                now = datasets
            else:
                now = {**now, what: datasets[what]}
            twins.put(**now)
            twins.run(chosen)
            objects = dict(twins.partial.objects)
            again = run(chosen, twins.partial, Path(folder), **LATER)
            assert (again.new, again.changed, again.replaced) == (0, 0, 0)
            assert twins.partial.objects == objects
            if compacts and contents(twins.partial):
                compact_table(twins.partial, strategy=Compaction.FULL)


SIDES = st.sampled_from([("a.k", "b.k"), ("a.k", "a.k"), ("b.k", "b.l"), ("b.l", "b.k")])
EDITS = st.lists(
    st.tuples(
        st.sampled_from("AB"),
        st.integers(0, 29),
        st.sampled_from(["k", "other", "gone", "moved", "deleted", "new"]),
        st.integers(0, 12),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=30, deadline=None)
@given(st.lists(EDITS, min_size=1, max_size=4), st.integers(0, 2**32 - 1), IDENTITIES, SIDES)
def test_small_changes_of_many_entities_are_partial_runs(
    edits: Any, seed: int, identity: str, sides: Any
) -> None:
    random = np.random.default_rng(seed)
    now = {
        name: [{"_id": f"{name}{n}", "k": int(random.integers(12)), "other": n} for n in range(30)]
        for name in "AB"
    }
    for name in "AB":  # rules match these, which no edit takes
        now[name][0] |= {"k": 99, "l": 99}
        now[name].insert(1, {"_id": f"{name}z", "k": 99, "l": 99, "other": 0})
    chosen = spec("A a", "B b", equality=[["eq", *sides]], version=2, identity=identity)
    with tempfile.TemporaryDirectory() as folder:
        twins = Twins(Path(folder))
        twins.put(**now)
        twins.run(chosen)
        for step in edits:
            for name, number, what, value in step:
                now[name] = edited(now[name], name, number, what, value)
            twins.put(**now)
            report = twins.run(chosen)
            assert report.looked_at is not None


def edited(entities: list[Any], name: str, number: int, what: str, value: int) -> list[Any]:
    """The first two entities stay, so that the rule matches something."""
    at = 2 + number % max(1, len(entities) - 2)
    if what == "new":
        known = {e["_id"] for e in entities}
        fresh = next(i for n in range(99) if (i := f"{name}{n}") not in known)
        return [*entities, {"_id": fresh, "k": value}]
    if len(entities) < 3:
        return entities
    before, entity, after = entities[:at], entities[at], entities[at + 1 :]
    if what == "gone":
        return [*before, *after]
    if what == "moved":
        return [*before, *after, entity]
    if what == "deleted":
        return [*before, {**entity, "_deleted": not entity.get("_deleted")}, *after]
    return [*before, {**entity, what: value}, *after]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 20), unique=True), st.lists(st.integers(0, 20), unique=True))
def test_rows_are_found_again_wherever_they_are(old: list[int], new: list[int]) -> None:
    places = matched(np.array(old, np.uint64), np.array(new, np.uint64)).tolist()
    assert places == [old.index(value) if value in old else -1 for value in new]


def test_a_row_that_comes_twice_is_not_found() -> None:
    with pytest.raises(NotProvenError):
        matched(np.array([1, 2, 3], np.uint64), np.array([7, 2, 8, 2, 9], np.uint64))


ON_K = [["eq", "a.k", "b.k"]]
A: list[Any] = [{"_id": f"a{n}", "k": n} for n in range(9)]
B: list[Any] = [{"_id": f"b{n}", "k": n} for n in range(9)]
CHOSEN = spec("A a", "B b", equality=ON_K, version=2)


@pytest.fixture
def twins(tmp_path: Path) -> Twins:
    """After a first run over A and B."""
    made = Twins(tmp_path / "in")
    made.put(A=A, B=B)
    made.run(CHOSEN)
    return made


def changed(entities: list[Any], k: int = 7) -> list[Any]:
    return [{**entities[0], "k": k}, *entities[1:]]


class TestWhatIsLookedAt:
    def test_nothing_if_nothing_has_changed(self, twins: Twins) -> None:
        with patch("compactor.entities.comparing.rows_in", side_effect=AssertionError):
            report = run(CHOSEN, twins.partial, twins.folder, **LATER)
        assert (report.looked_at, report.entities_read, report.unchanged) == (0, 18, 9)

    def test_a_file_that_was_just_changed_is_compared_row_by_row(self, twins: Twins) -> None:
        assert run(CHOSEN, twins.partial, twins.folder, **ALWAYS).looked_at == 0
        with (
            patch("compactor.entities.comparing.rows_in", side_effect=AssertionError),
            pytest.raises(AssertionError),
        ):
            run(CHOSEN, twins.partial, twins.folder, **ALWAYS)

    def test_the_old_and_the_new_cluster_of_what_has_changed(self, twins: Twins) -> None:
        twins.put(A=changed(A))
        assert twins.run(CHOSEN).looked_at == 4
        assert {e["_id"] for e in rows(twins.partial)} >= {"0|a0|0|a7|1|b7", "1|b0"}

    def test_all_after_a_change_of_too_many(self, twins: Twins) -> None:
        others = [{**e, "other": 1} for e in A]
        twins.put(A=others)
        assert twins.run(CHOSEN, max_looked_at=0.4).looked_at is None
        twins.put(A=changed(others, k=5))
        assert twins.run(CHOSEN, max_looked_at=0.4).looked_at == 4

    @pytest.mark.parametrize(
        "entities",
        [
            [*A, {"_id": "a0", "k": 3}],
            [*A, {"_id": "x", "k": 3}, {"_id": "x", "k": 4}],
            [*A, {"_id": "x|0|y", "k": 3}],
            [*A, {"_id": "x", "k": 3, "$replaced": True}],
        ],
    )
    def test_all_where_rows_are_not_entities_with_ids_of_their_own(
        self, twins: Twins, entities: list[Any]
    ) -> None:
        twins.put(A=entities)
        assert twins.run(CHOSEN).looked_at is None
        twins.put(A=changed(entities))
        assert twins.run(CHOSEN).looked_at is None
        twins.put(A=A)
        twins.run(CHOSEN)
        twins.put(A=changed(A))
        assert twins.run(CHOSEN).looked_at is not None

    def test_all_while_a_rule_matches_nothing_so_that_its_warning_has_figures(
        self, twins: Twins
    ) -> None:
        twins.put(B=[{**e, "k": -1 - e["k"]} for e in B])
        report = twins.run(CHOSEN, max_looked_at=2.0)
        assert report.looked_at is None
        assert len(report.warnings) == 1

    def test_all_where_datasets_share_ids_that_become_those_of_clusters(self, twins: Twins) -> None:
        chosen = spec("A a", "B b", equality=ON_K, version=2, identity="first")
        twins.put(B=[*B, {"_id": "x", "k": 3}])
        twins.run(chosen)
        twins.put(A=[*A, {"_id": "x", "k": 3}])
        assert twins.run(chosen).looked_at is None
        twins.put(A=changed([*A, {"_id": "x", "k": 3}]))
        assert twins.run(chosen).looked_at is None
        twins.put(A=A)
        assert twins.run(chosen).looked_at is None
        twins.put(A=changed(A))
        assert twins.run(chosen).looked_at == 4

    def test_all_where_two_datasets_get_the_same_new_id(self, twins: Twins) -> None:
        chosen = spec("A a", "B b", equality=ON_K, version=2, identity="first")
        twins.run(chosen)
        twins.put(A=[*A, {"_id": "x", "k": 3}], B=[*B, {"_id": "x", "k": 3}])
        assert twins.run(chosen).looked_at is None

    @pytest.mark.parametrize(
        "rule", [("a.k", "a.k"), ("a.k", "a.l"), ("a.l", "a.k")], ids=["one", "two", "other way"]
    )
    def test_what_changes_touch_where_a_rule_is_of_one_dataset(
        self, twins: Twins, rule: tuple[str, str]
    ) -> None:
        chosen = spec("A a", "B b", equality=[["eq", *rule]], version=2)
        now = [{**e, "l": 100 + e["k"]} for e in A]
        now[1] |= {"k": 200, "l": 200}  # an entity is no match of its own
        twins.put(A=now)
        assert twins.run(chosen).looked_at is None
        twins.put(A=changed(now, k=300))
        assert twins.run(chosen).looked_at is None, "it matches nothing"
        now = [*changed(now, k=300), {"_id": "twin", "k": 200, "l": 200}]
        twins.put(A=now)
        twins.run(chosen)
        twins.put(A=changed(now, k=400))
        assert twins.run(chosen).looked_at == 1

    @pytest.mark.parametrize(
        "other", [{"strategy": "compact"}, {"identity": "first"}, {"never": [["a1", "b2"]]}]
    )
    def test_all_by_other_settings(self, twins: Twins, other: dict[str, Any]) -> None:
        twins.put(A=changed(A))
        assert twins.run(spec("A a", "B b", equality=ON_K, version=2, **other)).looked_at is None

    def test_all_with_full_and_then_what_changes_touch(self, twins: Twins) -> None:
        assert twins.run(CHOSEN, full=True).looked_at is None
        twins.put(B=changed(B))
        assert twins.run(CHOSEN).looked_at == 4

    def test_all_after_others_have_deleted_rows(self, twins: Twins) -> None:
        for store in (twins.partial, twins.whole):
            log = CommitLog(store)
            delete_rows(store, log, "_id = '0|a1|1|b1'")
        report = twins.run(CHOSEN)
        assert (report.looked_at, report.new) == (None, 1)

    def test_a_deletion_during_a_run_ends_what_it_remembers(self, twins: Twins) -> None:
        twins.put(A=changed(A))
        for store, how in ((twins.partial, LATER), (twins.whole, NEVER)):
            slow = EntityMerge(
                EntityRun(spec=CHOSEN, store=store, folder=str(twins.folder), allow_changes=True),
                **how,
            )
            log = CommitLog(store)
            delete_rows(store, log, "_id = '0|a1|1|b1'")
            slow.run()
        assert twins.run(CHOSEN).new == 1

    def test_rows_that_moved_to_another_file_of_a_pattern(self, tmp_path: Path) -> None:
        twins = Twins(tmp_path)
        chosen = spec(
            "A a", "B b", equality=ON_K, version=2, sources={"A": f"{tmp_path}/part-*.ndjson"}
        )
        twins.put(**{"part-1": A[:4], "part-2": A[4:]}, B=B)
        twins.run(chosen)
        twins.put(**{"part-1": A[:2], "part-2": A[4:], "part-3": A[2:4]})
        assert twins.run(chosen).looked_at == 0
        (tmp_path / "part-2.ndjson").unlink()
        assert twins.run(chosen).looked_at == 5

    def test_links_are_of_all_entities(self, twins: Twins) -> None:
        twins.put(A=changed(A))
        asked = EntityRun(spec=CHOSEN, store=twins.partial, folder=str(twins.folder))
        merge = EntityMerge(asked, **LATER)
        report, _ = merge.look()
        assert report.looked_at == 4
        assert sum(batch.num_rows for batch in merge.links()) == 9


GROUP_ROWS = 4
GROUPS = [
    [{"_id": f"a{n}", "k": n} for n in range(start, start + GROUP_ROWS)]
    for start in range(0, 5 * GROUP_ROWS, GROUP_ROWS)
]


def put_groups(twins: Twins, groups: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Writes the dataset A as Parquet, each list a row group."""
    path = twins.folder / "A.parquet"
    schema = pa.schema({"_id": pa.string(), "k": pa.int64()})
    with pq.ParquetWriter(path, schema) as writer:
        for entities in groups:
            writer.write_table(pa.Table.from_pylist(list(entities), schema))


def groups_read(run_once: Callable[[], object]) -> list[Any]:
    """Runs. Returns which row groups were read of A."""
    with patch("compactor.entities.comparing.rows_in", side_effect=rows_in) as reads:
        run_once()
    # None stands for all of a file.
    return [
        call.args[2] for call in reads.call_args_list if call.args[0].place.endswith("A.parquet")
    ]


class TestRowGroups:
    @pytest.fixture
    def twins(self, tmp_path: Path) -> Twins:
        made = Twins(tmp_path / "in")
        made.put(B=[{"_id": f"b{n}", "k": n} for n in range(5 * GROUP_ROWS)])
        put_groups(made, GROUPS)
        made.run(CHOSEN)
        return made

    def test_only_those_that_have_changed_are_read(self, twins: Twins) -> None:
        put_groups(twins, [*GROUPS[:3], changed(GROUPS[3], k=5), GROUPS[4]])
        # That of a5, whose value a12 has now, too, is read to merge its cluster anew.
        assert groups_read(lambda: twins.run(CHOSEN)) == [[3], [1]]
        assert {e["_id"] for e in rows(twins.partial)} >= {"0|a12|0|a5|1|b5", "1|b12"}

    def test_of_what_has_not_changed_those_that_are_touched_are_read(self, twins: Twins) -> None:
        others = [{"_id": f"b{n}", "k": n + 100 * (n in (1, 9, 18))} for n in range(5 * GROUP_ROWS)]
        twins.put(B=others)
        assert groups_read(lambda: twins.run(CHOSEN)) == [[0, 2, 4]]

    def test_several_that_have_changed_and_moved(self, twins: Twins) -> None:
        put_groups(twins, [GROUPS[4], changed(GROUPS[1], k=9), changed(GROUPS[3], k=1), GROUPS[0]])
        assert groups_read(lambda: twins.run(CHOSEN))[0] == [1, 2]

    def test_none_of_a_file_that_was_only_written_again(self, twins: Twins) -> None:
        put_groups(twins, GROUPS)
        assert groups_read(lambda: twins.run(CHOSEN)) == []

    @pytest.mark.parametrize(
        ("places", "read"),
        [
            ([4, 0, 1, 2, 3], []),
            ([1, 2, 3, 4], []),
            ([0, 1, 2, 3, 4, 5], [[5]]),
            ([5, 0, 1, 2, 3, 4], [[0]]),
        ],
        ids=["moved", "removed", "appended", "put before others"],
    )
    def test_they_are_found_wherever_they_are(
        self, twins: Twins, places: list[int], read: list[Any]
    ) -> None:
        more = [{"_id": f"x{n}", "k": 100 + n} for n in range(3)]
        put_groups(twins, [[*GROUPS, more][place] for place in places])
        assert groups_read(lambda: twins.run(CHOSEN)) == read

    def test_one_that_comes_twice_is_one_twice(self, twins: Twins) -> None:
        put_groups(twins, [*GROUPS, GROUPS[2]])
        twins.run(CHOSEN)
        put_groups(twins, GROUPS)
        twins.run(CHOSEN)

    @pytest.mark.parametrize(
        "groups",
        [[changed(GROUPS[0], k=3), *GROUPS[1:]], GROUPS[:2], [*GROUPS[1:], GROUPS[0]]],
        ids=["other rows", "fewer", "another order"],
    )
    def test_all_are_read_if_the_file_changes_while_it_is_read(
        self, twins: Twins, groups: Sequence[Sequence[dict[str, Any]]]
    ) -> None:
        put_groups(twins, [*GROUPS[:4], changed(GROUPS[4], k=3)])

        def read(*given: Any) -> Any:
            put_groups(twins, groups)
            return rows_in(*given)

        with patch("compactor.entities.comparing.rows_in", side_effect=read):
            assert run(CHOSEN, twins.partial, twins.folder, **ALWAYS).looked_at is None
        run(CHOSEN, twins.whole, twins.folder, **NEVER)
        assert rows(twins.partial) == rows(twins.whole)


class TestKinds:
    def test_files_and_tables_of_all_kinds_are_compared_by_rows(self, tmp_path: Path) -> None:
        table = str(tmp_path / "C")
        chosen = spec(
            "A a", "B b", "C c", equality=[*ON_K, ["eq", "b.k", "c.k"]], version=2,
            types={"B": {"k": "bigint"}},
        )  # fmt: skip
        twins = Twins(tmp_path)
        for step in range(4):
            k = list(range(40))
            k[0] = step
            pq.write_table(pa.table({"_id": [f"a{n}" for n in range(40)], "k": k}),
                           tmp_path / "A.parquet", row_group_size=7)  # fmt: skip
            lines = "".join(f'"b\n{n}",{n if n else step + 3}\n' for n in range(40))
            (tmp_path / "B.csv").write_text(f"_id,k\n{lines}")
            more = tmp_path / "more.ndjson"
            more.write_text(f'{{"_id": "c{step}", "k": {step}}}\n')
            assert command(["ingest", table, str(more), "--sort-by", "_id"]) == 0
            os.utime(tmp_path / "A.parquet", (step, step))
            os.utime(tmp_path / "B.csv", (step, step))
            report = twins.run(chosen)
            assert (report.looked_at is None) == (step == 0)

    def test_a_table_that_only_was_compacted_is_not_read_into_entities(
        self, tmp_path: Path
    ) -> None:
        table = open_store(str(tmp_path / "A"))
        for n in range(2):
            file = tmp_path / f"{n}.csv"
            file.write_text(f"_id,k\na{n},{n}\n")
            assert command(["ingest", table.url, str(file), "--sort-by", "k"]) == 0
        twins = Twins(tmp_path)
        twins.put(B=[{"_id": "b", "k": 1}])
        twins.run(CHOSEN)
        compact_table(table, strategy=Compaction.FULL)
        assert twins.run(CHOSEN).looked_at == 0


class TestMemo:
    def memo(self, store: MemoryStore) -> str:
        [key] = [key for key in store.objects if key.endswith(".memo")]
        return key

    @pytest.mark.parametrize("damage", [b"", b"x", None, "cut", "bit"])
    def test_a_damaged_or_missing_one_means_a_run_over_all_and_a_line(
        self, twins: Twins, damage: Any
    ) -> None:
        key = self.memo(twins.partial)
        data = twins.partial.objects[key]
        if damage is None:
            del twins.partial.objects[key]
        elif damage == "cut":
            twins.partial.objects[key] = data[:-9]
        elif damage == "bit":
            twins.partial.objects[key] = bytes([data[0] ^ 1]) + data[1:]
        else:
            twins.partial.objects[key] = damage
        twins.put(A=changed(A))
        found = run(CHOSEN, twins.partial, twins.folder, **LATER)
        run(CHOSEN, twins.whole, twins.folder, **NEVER)
        assert found.looked_at is None
        [line] = found.warnings
        says(line.replace(key, "data/MEMO"))
        assert contents(twins.partial) == contents(twins.whole)
        twins.put(A=changed(A, k=3))
        assert twins.run(CHOSEN).looked_at is not None

    def test_the_last_one_alone_is_kept(self, twins: Twins) -> None:
        first = self.memo(twins.partial)
        twins.put(A=changed(A))
        twins.run(CHOSEN)
        second = self.memo(twins.partial)
        assert second != first
        log = CommitLog(twins.partial)
        assert log.current().memo == second
        vacuum(log, VacuumSettings(grace_seconds=0, retain_seconds=0, deleters=1))
        assert self.memo(twins.partial) == second

    def test_a_killed_run_leaves_the_table_and_the_next_one_does_it(self, twins: Twins) -> None:
        twins.put(A=changed(A))
        whole = MemoryStore(dict(twins.partial.objects))
        run(CHOSEN, whole, twins.folder, **LATER)
        steps = len(whole.calls)
        before, expected = contents(twins.partial), contents(whole)
        for step in range(steps):
            broken = MemoryStore(dict(twins.partial.objects))
            broken.faults.add(Kill(), at=calls().nth(step + 1))
            with pytest.raises(Crash):
                run(CHOSEN, broken, twins.folder, **LATER)
            after = MemoryStore(broken.objects)
            assert contents(after) in (before, expected)
            report = run(CHOSEN, after, twins.folder, **LATER)
            assert report.looked_at is not None
            assert not report.warnings
            assert contents(after) == expected


class TestWhatIsPromised:
    def test_too_many_changes_and_too_large_clusters_are_refused(self, twins: Twins) -> None:
        few = [{**e, "_deleted": True} for e in A]
        small = spec("A a", "B b", equality=ON_K, version=2, min_ended=1, max_ended_percent=5)
        twins.run(small)
        twins.put(A=[*changed(A, k=4)])
        twins.run(small)
        objects = dict(twins.partial.objects)
        twins.put(A=[few[0], *A[1:]], B=[*B[:4], {"_id": "b4"}, *B[5:]])
        with refuses(UsageError, "living entities"):
            run(small, twins.partial, twins.folder, allow_changes=False, **LATER)
        narrow = spec("A a", "B b", equality=ON_K, version=2, max_merged=2)
        twins.put(A=changed(A), B=B)
        with refuses(JobError, "max_merged"):
            run(narrow, twins.partial, twins.folder, **LATER)
        assert twins.partial.objects == objects

    def test_a_dataset_that_is_gone_is_refused(self, twins: Twins) -> None:
        (twins.folder / "B.ndjson").unlink()
        with refuses(UsageError, "dataset B is not there"):
            run(CHOSEN, twins.partial, twins.folder, allow_changes=False, **LATER)
        assert twins.run(CHOSEN).missing_datasets == ("B",)

    def test_a_mistake_in_a_file_has_its_line(self, twins: Twins) -> None:
        (twins.folder / "B.ndjson").write_text('{"_id": "b0", "k": 1}\n{"_id": 7.5}\n')
        with refuses(InputError, "line 2"):
            run(CHOSEN, twins.partial, twins.folder, **LATER)
