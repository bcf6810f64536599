"""Runs of an entity merge into a table: what is remembered, what is refused, and what happens if two meet or
one is killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from compactor.cli.main import run as command
from compactor.entities.entity_merge import EntityMerge
from compactor.entities.run import EntityRun
from compactor.entities.state import State
from compactor.errors import (
    CommitConflictError,
    ConfigError,
    DataError,
    JobError,
    UsageError,
)
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.write.alter import Alteration, alter_table
from compactor.write.restore import restore_version
from tests.entities.support import by_id, rows, run, spec, write
from tests.faults import Crash, Kill, calls
from tests.support.memory_store import MemoryStore
from tests.support.tables import compact_table
from tests.support.wording import refuses, says

ON_K = [["eq", "a.k", "b.k"]]
A = [{"_id": "a1", "k": 1}, {"_id": "a2", "k": 2}]
B = [{"_id": "b1", "k": 1}, {"_id": "b2", "k": 3}]


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    """After a first run over A and B."""
    write(tmp_path, {"A": A, "B": B})
    store = MemoryStore()
    run(spec("A a", "B b", equality=ON_K), store, tmp_path)
    return store


class TestDatasets:
    def test_one_more_at_the_end_keeps_what_is_there(
        self, store: MemoryStore, tmp_path: Path
    ) -> None:
        before = rows(store)
        write(tmp_path, {"C": [{"_id": "c1", "k": 2}]})
        more = spec("A a", "B b", "C c", equality=[*ON_K, ["eq", "a.k", "c.k"]])
        report = run(more, store, tmp_path)
        assert (report.new, report.changed, report.replaced, report.unchanged) == (1, 0, 1, 2)
        assert [e["_id"] for e in rows(store, since=2)] == ["0|a2", "0|a2|2|c1"]
        assert rows(store)[0] == before[0]

    def test_other_names_and_aliases_change_nothing(
        self, store: MemoryStore, tmp_path: Path
    ) -> None:
        write(tmp_path, {"A2": A})
        found = rows(store)
        other_name = spec("A2 a", "B b", equality=ON_K)
        report = run(other_name, store, tmp_path)
        assert (report.unchanged, report.version) == (3, 2)
        swapped_aliases = spec("A2 b", "B a", equality=[["eq", "b.k", "a.k"]])
        assert run(swapped_aliases, store, tmp_path).unchanged == 3
        assert rows(store) == found

    @pytest.mark.parametrize(
        "names",
        [
            ("A a",),
            ("B b", "A a"),
            ("B a", "A b"),
            ("A a", "C c", "B b"),
        ],
    )
    def test_others_at_their_place_need_a_full_run(
        self, store: MemoryStore, tmp_path: Path, names: tuple[str, ...]
    ) -> None:
        objects = dict(store.objects)
        with refuses(UsageError, "--full"):
            run(spec(*names), store, tmp_path)
        assert store.objects == objects
        write(tmp_path, {"C": []})
        run(spec(*names), store, tmp_path, full=True)
        fresh = MemoryStore()
        run(spec(*names), fresh, tmp_path)
        living = {i: e for i, e in by_id(rows(store)).items() if "$replaced" not in e}
        assert living == by_id(rows(fresh))
        assert run(spec(*names), store, tmp_path).version == CommitLog(store).current().version

    def test_a_new_name_and_a_new_alias_may_come_together(
        self, store: MemoryStore, tmp_path: Path
    ) -> None:
        (tmp_path / "A.ndjson").rename(tmp_path / "crm.ndjson")
        found = rows(store)
        renamed = spec("crm c", "B b", equality=[["eq", "c.k", "b.k"]])
        assert run(renamed, store, tmp_path, allow_changes=False).unchanged == 3
        assert rows(store) == found

    def test_an_absent_one_is_empty(self, tmp_path: Path) -> None:
        write(tmp_path, {"A": A})
        store = MemoryStore()
        report = run(spec("A a", "B b", equality=ON_K, initial_datasets=["B"]), store, tmp_path)
        assert (report.missing_datasets, report.new) == (("B",), 2)
        write(tmp_path, {"B": B})
        run(spec("A a", "B b", equality=ON_K), store, tmp_path)
        assert "0|a1|1|b1" in by_id(rows(store))

    def test_a_run_waits_for_initial_datasets_that_may_not_be_absent(self, tmp_path: Path) -> None:
        write(tmp_path, {"A": A})
        store = MemoryStore()
        strict: dict[str, Any] = {"equality": ON_K, "ignore_non_existent_datasets": False}
        names = "A a", "B b", "C c"
        of_b = spec(*names, **strict, initial_datasets=["A", "B"])
        assert run(of_b, store, tmp_path).waiting_for == ("B",)
        assert run(spec(*names, **strict), store, tmp_path).waiting_for == ("B", "C")
        assert not store.objects
        none = run(spec(*names, **strict, initial_datasets=[]), MemoryStore(), tmp_path)
        assert (none.waiting_for, none.missing_datasets) == ((), ("B", "C"))
        write(tmp_path, {"B": B})
        found = run(of_b, store, tmp_path)
        assert (found.waiting_for, found.missing_datasets, found.new) == ((), ("C",), 3)
        before = dict(store.objects)
        (tmp_path / "B.ndjson").unlink()
        assert run(of_b, store, tmp_path).waiting_for == ("B",)
        assert store.objects == before


class TestLimits:
    def test_a_run_that_would_merge_too_many_writes_nothing(
        self, store: MemoryStore, tmp_path: Path
    ) -> None:
        objects = dict(store.objects)
        write(tmp_path, {"B": [{"_id": f"b{n}", "k": 1} for n in range(9)]})
        with refuses(JobError):
            run(spec("A a", "B b", equality=ON_K, max_merged=9), store, tmp_path)
        assert store.objects == objects
        assert run(spec("A a", "B b", equality=ON_K, max_merged=10), store, tmp_path).changed == 0

    def test_a_run_that_would_take_too_much_memory_writes_nothing(self, tmp_path: Path) -> None:
        write(tmp_path, {"A": A, "B": [{"_id": f"b{n}", "text": "x" * 100} for n in range(999)]})
        (tmp_path / "s.yaml").write_text("datasets: [A a, B b]\n")
        call = ["entity-merge", str(tmp_path / "s.yaml"), "--datasets", str(tmp_path)]
        table = ["--output", str(tmp_path / "t")]
        assert command([*call, *table, "--memory-limit", "100kB"]) == 1
        assert not (tmp_path / "t").exists()
        assert command([*call, *table, "--memory-limit", "1MB"]) == 0

    def test_first_ids_that_collide_are_refused(self, store: MemoryStore, tmp_path: Path) -> None:
        write(tmp_path, {"B": [{"_id": "a1", "k": 7}]})
        with refuses(ConfigError, "A.ndjson), line 1", "B.ndjson), line 1"):
            run(spec("A a", "B b", equality=ON_K, identity="first"), store, tmp_path)
        (tmp_path / "C.csv").write_text("_id,k\nx,1\na1,2\ny,3\na1,4\n")
        (tmp_path / "A.ndjson").unlink()
        with refuses(ConfigError, "B.ndjson), line 1", "C.csv), row 4"):
            run(spec("A a", "B b", "C c", equality=ON_K, identity="first"), MemoryStore(), tmp_path)

    def test_composite_ids_that_collide_are_refused(self, tmp_path: Path) -> None:
        write(
            tmp_path, {"A": [{"_id": "x|1|y"}, {"_id": "x", "k": 1}], "B": [{"_id": "y", "k": 1}]}
        )
        with refuses(ConfigError):
            run(spec("A a", "B b", equality=ON_K), MemoryStore(), tmp_path)


class TestSequence:
    def test_who_asks_again_with_the_last_number_misses_nothing(
        self, store: MemoryStore, tmp_path: Path
    ) -> None:
        seen = {e["_id"]: e for e in rows(store, since=-1)}
        for k in (2, 3, 2, 9):
            write(tmp_path, {"B": [{"_id": "b1", "k": k}]})
            run(spec("A a", "B b", equality=ON_K), store, tmp_path)
            if k == 3:
                compact_table(store)
            newer = rows(store, since=max(e["_updated"] for e in seen.values()))
            assert [e["_updated"] for e in newer] == sorted(e["_updated"] for e in newer)
            seen |= {e["_id"]: e for e in newer}
            assert seen == {e["_id"]: e for e in rows(store)}

    def test_a_full_run_numbers_every_entity_anew(self, store: MemoryStore, tmp_path: Path) -> None:
        before = rows(store)
        run(spec("A a", "B b", equality=ON_K), store, tmp_path, full=True)
        assert by_id(rows(store)) == by_id(before)
        assert [e["_updated"] for e in rows(store)] == [3, 4, 5]

    def test_what_is_deleted_in_its_place_is_written(
        self, store: MemoryStore, tmp_path: Path
    ) -> None:
        write(tmp_path, {"B": [B[0], {**B[1], "_deleted": True}]})
        run(spec("A a", "B b", equality=ON_K), store, tmp_path)
        assert by_id(rows(store, since=2)) == {
            "1|b2": {"_id": "1|b2", "$ids": ["b2"], "k": 3, "_deleted": True}
        }

    def test_members_that_change_places_are_a_change(self, tmp_path: Path) -> None:
        chosen = spec("A a", "B b", "C c", equality_sets=[["a.k", "b.k", "c.k"]], identity="first")
        store = MemoryStore()
        y, z = {"_id": "y", "k": 1, "p": "y"}, {"_id": "z", "k": 1, "p": "z"}
        for second, third in ((y, z), (z, y)):
            write(tmp_path, {"A": [{"_id": "x", "k": 1}], "B": [second], "C": [third]})
            run(chosen, store, tmp_path)
            [found] = rows(store)
            assert (found["_id"], found["p"]) == ("x", [second["p"], third["p"]])

    def test_another_strategy_writes_every_entity_that_it_makes_another(
        self, store: MemoryStore, tmp_path: Path
    ) -> None:
        run(spec("A a", "B b", equality=ON_K, strategy="compact"), store, tmp_path)
        assert by_id(rows(store))["0|a1|1|b1"]["k"] == 1


class TestProperties:
    def test_new_ones_come_as_columns_and_types_may_mix(
        self, store: MemoryStore, tmp_path: Path
    ) -> None:
        b: list[dict[str, Any]] = [
            *B,
            {"_id": "b3", "k": "x", "new": {"deep": [1, {"er": None}]}, "": 0, "n": None},
        ]
        write(tmp_path, {"B": b})
        run(spec("A a", "B b", equality=ON_K), store, tmp_path)
        assert by_id(rows(store))["1|b3"] == {**b[-1], "_id": "1|b3", "$ids": ["b3"]}

    def test_long_integers_and_texts_of_any_kind_come_out_as_they_went_in(
        self, tmp_path: Path
    ) -> None:
        odd = {"big": 10**40, "small": -(10**20), "text": '\u0000"\\\n\u001f\u007f😀', "e": 1e300}
        write(tmp_path, {"A": [{"_id": 'ü"\\|', **odd}]})
        store = MemoryStore()
        run(spec("A a"), store, tmp_path)
        assert by_id(rows(store)) == {'0|ü"\\|': {"_id": '0|ü"\\|', "$ids": ['ü"\\|'], **odd}}

    def test_the_output_of_a_merge_is_the_input_of_another(
        self, store: MemoryStore, tmp_path: Path
    ) -> None:
        address = str(tmp_path / "first")
        command_spec = tmp_path / "s.json"
        command_spec.write_text(json.dumps({"datasets": ["A a", "B b"], "equality": ON_K}))
        call = ["entity-merge", str(command_spec), "--datasets", str(tmp_path), "--output", address]
        assert command(call) == 0
        second = spec("first f", "X x", equality=[["eq", "f.$ids", "x._id"]], strategy="compact")
        write(tmp_path, {"X": [{"_id": "b1", "color": "red"}]})
        again = MemoryStore()
        run(second, again, tmp_path)
        assert by_id(rows(again))["0|0|a1|1|b1|1|b1"] == {
            "_id": "0|0|a1|1|b1|1|b1", "$ids": ["a1", "b1"], "k": 1, "color": "red",
        }  # fmt: skip

    def test_a_merge_of_a_merge_replaces_what_the_first_one_replaced(self, tmp_path: Path) -> None:
        first, again = open_store(str(tmp_path / "first")), MemoryStore()
        for k in (1, 9):
            write(tmp_path, {"A": A, "B": [{"_id": "b1", "k": k}]})
            run(spec("A a", "B b", equality=ON_K), first, tmp_path)
            run(spec("first f"), again, tmp_path)
        found = by_id(rows(again))
        assert found["0|0|a1|1|b1"] == {
            "_id": "0|0|a1|1|b1", "_deleted": True, "$replaced": True,
        }  # fmt: skip
        assert {i for i, e in found.items() if "_deleted" not in e} == {
            "0|0|a1",
            "0|0|a2",
            "0|1|b1",
        }


class TestTables:
    def test_rows_of_others_in_the_table_are_refused_until_they_are_deleted(
        self, tmp_path: Path
    ) -> None:
        write(tmp_path, {"A": A})
        table = str(tmp_path / "t")
        run(spec("A a"), open_store(table), tmp_path)
        foreign = tmp_path / "foreign.ndjson"
        foreign.write_text('{"_id": "x", "$key": "x", "_updated": 99}\n')
        assert command(["ingest", table, str(foreign)]) == 0
        for full in (False, True):
            with refuses(DataError):
                run(spec("A a"), open_store(table), tmp_path, full=full)
        assert command(["delete", table, "--where", "_id = 'x'"]) == 0
        assert run(spec("A a"), open_store(table), tmp_path).unchanged == 2

    def test_a_table_of_others_is_left_alone(self, tmp_path: Path) -> None:
        write(tmp_path, {"A": A})
        (tmp_path / "s.json").write_text('{"datasets": ["A a"]}')
        table = str(tmp_path / "table")
        assert command(["ingest", table, str(tmp_path / "A.ndjson"), "--sort-by", "k"]) == 0
        call = ["entity-merge", str(tmp_path / "s.json"), "--datasets", str(tmp_path)]
        assert command([*call, "--output", table]) == 2

    @pytest.mark.parametrize(
        "alteration",
        [
            Alteration(renames={"k": "key"}),
            Alteration(drops=["k"]),
            Alteration(redacts=["k"]),
        ],
        ids=["renamed", "dropped", "redacted"],
    )
    def test_rows_of_old_and_new_columns_do_not_mix(
        self, store: MemoryStore, tmp_path: Path, alteration: Alteration
    ) -> None:
        log, chosen = CommitLog(store), spec("A a", "B b", equality=ON_K)
        write(tmp_path, {"B": [{"_id": "b1", "k": 2}]})
        alter_table(log, alteration)
        version = log.refresh().version
        with refuses(UsageError, "k"):
            run(chosen, store, tmp_path)
        assert log.refresh().version == version
        run(chosen, store, tmp_path, full=True)
        assert by_id(rows(store))["0|a2|1|b1"] == {
            "_id": "0|a2|1|b1", "$ids": ["a2", "b1"], "k": [2, 2],
        }  # fmt: skip
        if alteration.renames:  # what no run writes any more may go
            alter_table(log, Alteration(drops=["key"]))
        assert run(chosen, store, tmp_path).unchanged == 2

    def test_what_is_remembered_outlives_changes_of_columns(
        self, store: MemoryStore, tmp_path: Path
    ) -> None:
        log, chosen = CommitLog(store), spec("A a", "B b", equality=ON_K)
        alter_table(log, Alteration(renames={"k": "key"}))
        alter_table(log, Alteration(renames={"key": "k"}, order=["k"]))
        assert run(chosen, store, tmp_path).unchanged == 3

    @pytest.mark.parametrize("column", ["$signature", "$replaced", "_deleted", "_id"])
    def test_columns_of_the_merge_itself_are_neither_dropped_nor_redacted(
        self, store: MemoryStore, tmp_path: Path, column: str
    ) -> None:
        log, chosen = CommitLog(store), spec("A a", "B b", equality=ON_K)
        for alteration in (Alteration(drops=[column]), Alteration(redacts=[column])):
            with refuses(UsageError, column, "entity merge"):
                alter_table(log, alteration)
        assert run(chosen, store, tmp_path, full=True).unchanged == 0

    def test_columns_of_the_merge_itself_stay_after_runs_without_rows(
        self, store: MemoryStore, tmp_path: Path
    ) -> None:
        for name in ("A", "B", "C"):
            write(tmp_path, {name: []})
        run(spec("A a", "B b", equality=ON_K), store, tmp_path, full=True)
        run(spec("A a", "C b", equality=ON_K), store, tmp_path, full=True)
        with refuses(UsageError, "$signature", "entity merge"):
            alter_table(CommitLog(store), Alteration(drops=["$signature"]))

    def test_a_table_inside_another_is_refused_before_anything_is_read_or_written(
        self, tmp_path: Path
    ) -> None:
        write(tmp_path, {"A": A})
        outer = tmp_path / "t"
        run(spec("A a"), open_store(str(outer)), tmp_path)
        before = sorted(outer.rglob("*"))
        with (
            patch("compactor.entities.entity_merge.read_dataset", side_effect=AssertionError),
            refuses(UsageError, "inside the table"),
        ):
            run(spec("A a"), open_store(str(outer / "in")), tmp_path)
        assert sorted(outer.rglob("*")) == before

    @pytest.mark.parametrize(
        "there", [{"$signature": "s"}, {"$ids": "k", "k": "$ids"}], ids=["renamed", "swapped"]
    )
    def test_columns_of_the_merge_itself_need_their_names(
        self, store: MemoryStore, tmp_path: Path, there: dict[str, str]
    ) -> None:
        log, chosen = CommitLog(store), spec("A a", "B b", equality=ON_K)
        alter_table(log, Alteration(renames=there))
        for full in (False, True):
            with refuses(UsageError, next(iter(there)), "as before"):
                run(chosen, store, tmp_path, full=full)
        alter_table(log, Alteration(renames={new: old for old, new in there.items()}))
        assert run(chosen, store, tmp_path).unchanged == 3

    def test_numbers_of_updates_go_on_after_a_restore(
        self, store: MemoryStore, tmp_path: Path
    ) -> None:
        """A reader that has seen the greatest would miss what gets it again."""
        chosen, log = spec("A a", "B b", equality=ON_K), CommitLog(store)
        first = log.refresh()
        write(tmp_path, {"B": [{"_id": "b1", "k": 2}]})
        seen = run(chosen, store, tmp_path).next_updated
        restore_version(log, first)
        write(tmp_path, {"B": [{"_id": "b1", "k": 3}]})
        assert run(chosen, store, tmp_path).next_updated > seen

    def test_no_dataset_gets_the_number_of_another_after_a_restore(
        self, store: MemoryStore, tmp_path: Path
    ) -> None:
        first = CommitLog(store).refresh()
        for name, number in (("C", 2), ("D", 3)):
            write(tmp_path, {name: [{"_id": "x1", "k": 9}]})
            run(spec("A a", "B b", f"{name} c", equality=ON_K), store, tmp_path)
            state = State.of(CommitLog(store).refresh().metadata, "")
            assert state is not None
            assert state.numbers == (0, 1, number)
            restore_version(CommitLog(store), first)

    def test_an_interrupted_run_leaves_the_table_and_the_next_one_does_it(
        self, store: MemoryStore, tmp_path: Path
    ) -> None:
        write(tmp_path, {"B": [{"_id": "b1", "k": 2}]})
        chosen = spec("A a", "B b", equality=ON_K)
        whole = MemoryStore(dict(store.objects))
        run(chosen, whole, tmp_path)
        expected, steps = rows(whole), len(whole.calls)
        before = rows(store)
        kills = 0
        for step in range(steps):
            broken = MemoryStore(dict(store.objects))
            broken.faults.add(Kill(), at=calls().nth(step + 1))
            try:
                run(chosen, broken, tmp_path)
            except Crash:
                kills += 1
            after = MemoryStore(broken.objects)
            assert rows(after) in (before, expected)
            run(chosen, after, tmp_path)
            assert rows(after) == expected
        assert kills > 5

    def test_of_two_runs_at_once_one_writes_and_the_other_says_so(
        self, store: MemoryStore, tmp_path: Path
    ) -> None:
        chosen = spec("A a", "B b", equality=ON_K)
        slow = EntityMerge(
            EntityRun(spec=chosen, store=store, folder=str(tmp_path), allow_changes=True)
        )
        write(tmp_path, {"B": [{"_id": "b1", "k": 2}]})
        run(chosen, MemoryStore(store.objects), tmp_path)
        expected = rows(store)
        write(tmp_path, {"B": [{"_id": "b1", "k": 9}]})
        with refuses(CommitConflictError):
            slow.run()
        assert rows(store) == expected
        run(chosen, store, tmp_path)
        assert by_id(rows(store))["1|b1"]["k"] == 9

    def test_of_two_first_runs_at_once_one_writes(self, tmp_path: Path) -> None:
        write(tmp_path, {"A": A, "B": B})
        store = MemoryStore()
        chosen = spec("A a", "B b", equality=ON_K)
        slow = EntityMerge(
            EntityRun(spec=chosen, store=store, folder=str(tmp_path), allow_changes=True)
        )
        run(chosen, MemoryStore(store.objects), tmp_path)
        expected = rows(store)
        with pytest.raises(CommitConflictError):
            slow.run()
        assert rows(store) == expected

    @pytest.mark.parametrize("full", [False, True])
    def test_columns_that_are_altered_meanwhile_are_a_conflict(
        self, store: MemoryStore, tmp_path: Path, full: bool
    ) -> None:
        chosen = spec("A a", "B b", equality=ON_K)
        write(tmp_path, {"B": [{"_id": "b1", "k": 2}]})
        slow = EntityMerge(
            EntityRun(spec=chosen, store=store, folder=str(tmp_path), allow_changes=True, full=full)
        )
        alter_table(CommitLog(MemoryStore(store.objects)), Alteration(renames={"k": "key"}))
        with refuses(CommitConflictError):
            slow.run()

    def test_a_compaction_meanwhile_disturbs_nobody(
        self, store: MemoryStore, tmp_path: Path
    ) -> None:
        chosen = spec("A a", "B b", equality=ON_K)
        write(tmp_path, {"B": [{"_id": "b1", "k": 2}]})
        run(chosen, store, tmp_path)
        slow = EntityMerge(
            EntityRun(spec=chosen, store=store, folder=str(tmp_path), allow_changes=True)
        )
        write(tmp_path, {"B": [{"_id": "b1", "k": 1}]})
        compact_table(MemoryStore(store.objects))
        slow.run()
        assert {i for i, e in by_id(rows(store)).items() if "$replaced" not in e} == {
            "0|a1|1|b1", "0|a2",
        }  # fmt: skip


CUSTOMERS = "version: 2\ndatasets: [A a, B b]\n"


class TestCommand:
    @pytest.fixture
    def call(self, tmp_path: Path) -> list[str]:
        write(tmp_path, {"A": A, "B": B})
        (tmp_path / "s.yaml").write_text(f"{CUSTOMERS}equality: [[eq, a.k, b.k]]\n")
        return ["entity-merge", str(tmp_path / "s.yaml"), "--datasets", str(tmp_path)]

    def test_tables_on_every_store_are_datasets_and_outputs(
        self, call: list[str], tmp_path: Path, table_url: str
    ) -> None:
        for name in ("A", "B"):
            file = str(tmp_path / f"{name}.ndjson")
            assert command(["ingest", f"{table_url}/{name}", file, "--sort-by", "_id"]) == 0
        lines = tmp_path / "out.ndjson"
        stored = ["--datasets", table_url, "--output", f"{table_url}/out", "--ndjson", str(lines)]
        assert command([*call[:2], *stored]) == 0
        assert [json.loads(line)["_id"] for line in lines.read_text().splitlines()] == [
            "0|a1|1|b1", "0|a2", "1|b2",
        ]  # fmt: skip

    def test_a_dry_run_says_what_it_would_write(
        self, call: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        target = tmp_path / "would.ndjson"
        assert command([*call, "--dry-run", "--json", "--ndjson", str(target)]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["new"], report["dry_run"], report["version"]) == (3, True, 0)
        assert len(target.read_text().splitlines()) == 3

    def test_mistakes_are_one_line_each(
        self, call: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        table = ["--output", str(tmp_path / "t")]
        for arguments in (
            [],
            [*table, "--since", "4"],
            [*table, "--ndjson", "-", "--json"],
            [*table, "--ndjson", "x.csv"],
        ):
            assert command([*call, *arguments]) == 2
            error = capsys.readouterr().err
            assert error.count("\n") == 1
            says(error)
        assert not (tmp_path / "t").exists()

    def test_a_number_beyond_the_sequence_is_refused(self, call: list[str], tmp_path: Path) -> None:
        since = ["--output", str(tmp_path / "t"), "--ndjson", "-", "--since"]
        assert command([*call, *since, str(1 << 63)]) == 2
        assert command([*call, *since, str((1 << 63) - 1)]) == 0

    @pytest.mark.parametrize("said", ["version: 1", "", "{version: 2, supports_signalling: false}"])
    def test_settings_of_the_reference_that_do_nothing_say_so(
        self, call: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], said: str
    ) -> None:
        text = (
            said.replace("}", ", datasets: [A a]}") if "{" in said else f"datasets: [A a]\n{said}"
        )
        (tmp_path / "s.yaml").write_text(text)
        assert command([*call, "--dry-run"]) == 0
        says(capsys.readouterr().err)

    def test_a_merge_that_waits_has_an_exit_code_of_its_own(
        self, call: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        settings = "datasets: [A a, C c]\nversion: 2\nignore_non_existent_datasets: false\n"
        (tmp_path / "s.yaml").write_text(settings)
        table = tmp_path / "t"
        lines = tmp_path / "out.ndjson"
        for options in ([], ["--dry-run"], ["--ndjson", str(lines)]):
            assert command([*call, "--output", str(table), *options]) == 7
            says(capsys.readouterr().out)
        assert command([*call, "--output", str(table), "--json"]) == 7
        assert json.loads(capsys.readouterr().out)["waiting_for"] == ["C"]
        metrics = tmp_path / "m.prom"
        assert command([*call, "--output", str(table), "--metrics-textfile", str(metrics)]) == 7
        assert (
            f'compactor_run_success{{command="entity-merge",table="{table}"}} 0.0'
            in metrics.read_text()
        )
        assert not table.exists()
        assert not lines.exists()

    def test_lines_since_a_number_go_to_a_file(self, call: list[str], tmp_path: Path) -> None:
        target = tmp_path / "newer.ndjson.gz"
        table = ["--output", str(tmp_path / "t")]
        assert command([*call, *table, "--ndjson", str(target), "--since", "1"]) == 0
        assert command(["ingest", str(tmp_path / "u"), str(target), "--sort-by", "_id"]) == 0
