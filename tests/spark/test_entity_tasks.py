"""Entity merges whose entities are in many tasks, held against those in one process. On a stand-in for Spark
that runs every task twice and sends rows in another order; on Spark itself: test_entity."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compactor.common.clock import Clock
from compactor.entities.components import components
from compactor.entities.entity_merge import EntityMerge
from compactor.entities.entity_report import EntityMergeReport
from compactor.entities.links import LINKS
from compactor.entities.on_spark import SparkEntityMerge
from compactor.entities.run import EntityRun
from compactor.entities.spec import EntityMergeSpec
from compactor.entities.tasks import connecting, matching, reading
from compactor.entities.tasks.context import Context
from compactor.errors import (
    CommitConflictError,
    CompactorError,
    InputError,
    JobError,
    UsageError,
)
from compactor.read.scan import scan
from compactor.resources.errors import MemoryLimitError
from compactor.rows.policy import Ttl
from compactor.spark.session import SparkOptions
from compactor.spark.shuffle.task import TaskRows
from compactor.stores.base import Store
from compactor.stores.local import LocalStore
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from tests.entities.support import rows, run, spec, write
from tests.spark.stand_in import FakeFrame, FakeSpark, as_session
from tests.support.wording import refuses, says

ON_K = [["eq", "a.k", "b.k"]]


class FakeConnector:
    """Connected components in one process, not named after their smallest nodes: nobody may count on that."""

    def components(self, edges: Any, _url: str, _on_round: Any) -> Any:
        table = edges.toArrow()
        left, right = (np.asarray(table.column(name)) for name in ("left", "right"))
        nodes, numbers = np.unique(np.concatenate([left, right]), return_inverse=True)
        labels = components(len(nodes), numbers[: len(left)], numbers[len(left) :])
        largest_of = np.zeros(len(nodes), np.int64)
        np.maximum.at(largest_of, labels, nodes)
        found = pa.RecordBatch.from_pydict({"node": nodes, "component": largest_of[labels]})
        return FakeFrame(edges._spark, [[found.slice(n, 2)] for n in range(0, len(nodes), 2)])

    def larger_than(self, labels: Any, most: int) -> Any:
        table = labels.toArrow()
        of = np.asarray(table.column("component"))
        _, inverse, counts = np.unique(of, return_inverse=True, return_counts=True)
        if not len(counts) or counts.max() <= most:
            return None
        largest = table.filter(pa.array(counts[inverse] == counts.max()))
        return int(counts.max()), FakeFrame(labels._spark, [largest.to_batches()])


class Noon:
    """A clock that stands, so that both tables have replaced an id at the same time."""

    def now_unix_ms(self) -> int:
        return 1_700_000_000_000

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing waits")


def run_in_tasks(
    chosen: EntityMergeSpec,
    store: Store | None,
    folder: Path,
    *,
    full: bool = False,
    parts: int | None = 3,
    dry_run: bool = False,
    one_task_bytes: int | None = None,
    clock: Clock | None = None,
    on_links: Any = None,
    **settings: Any,
) -> EntityMergeReport:
    settings = {"allow_changes": True} | settings
    asked = EntityRun(spec=chosen, store=store, folder=str(folder), full=full, **settings)
    merge = SparkEntityMerge(
        asked, connector=FakeConnector(), one_task_bytes=one_task_bytes, clock=clock or Noon()
    )
    spark = FakeSpark()
    report = merge.run(as_session(spark), SparkOptions(None, parts), on_links, dry_run=dry_run)
    assert spark.kept == 0
    assert not any(name.startswith("spark.sql") for name in spark.conf)
    return report


class Both:
    """A table that is merged in one process, and one in tasks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.one, self.many = LocalStore(str(folder / "one")), LocalStore(str(folder / "many"))

    def run(
        self,
        chosen: EntityMergeSpec,
        *,
        full: bool = False,
        parts: int = 3,
        allow_changes: bool = True,
        one_task_bytes: int | None = None,
        tombstone_retention_seconds: float | None = None,
    ) -> str:
        """What both have come to."""
        outcomes = []
        for store in (self.one, self.many):
            try:
                if store is self.one:
                    # Tasks look at all entities, and their figures are of all.
                    report = run(
                        chosen,
                        store,
                        self._folder,
                        full=full,
                        allow_changes=allow_changes,
                        tombstone_retention_seconds=tombstone_retention_seconds,
                        max_looked_at=0,
                        clock=Noon(),
                    )
                else:
                    report = run_in_tasks(
                        chosen,
                        store,
                        self._folder,
                        full=full,
                        parts=parts,
                        allow_changes=allow_changes,
                        tombstone_retention_seconds=tombstone_retention_seconds,
                        one_task_bytes=one_task_bytes,
                    )
                outcomes.append(str(report))
            except CompactorError as error:
                outcomes.append(f"{type(error).__name__}: {error}")
        # Of several ids that two entities have, each task knows its own.
        one, many = (re.sub(r"the id '[^']*'", "the id", outcome) for outcome in outcomes)
        assert one.replace(self.one.url, self.many.url) == many
        assert rows(self.one) == rows(self.many)
        assert stored(self.one) == stored(self.many)
        return outcomes[0]


def stored(store: Store) -> Any:
    """All columns of all rows, signatures too, and what the table remembers."""
    log = CommitLog(store)
    if log.refresh().version == 0:
        return None
    snapshot = log.current()
    found = pa.Table.from_batches(scan(store, snapshot), snapshot.table.shown_schema)
    return found.to_pydict(), snapshot.metadata


IDS = st.sampled_from(["1", "2", "a|1", "é", "x" * 200])
VALUES = st.sampled_from([1, 2, 3, "1", "x", "X", None, [], [1, 2], [2, "x", None], {"k": 1}, 1.5])
ENTITIES = st.lists(
    st.fixed_dictionaries(
        {"_id": IDS},
        optional={
            "k": VALUES,
            "m": VALUES,
            "_deleted": st.booleans(),
            "$replaced": st.booleans(),
            "$ids": st.lists(IDS, max_size=2),
        },
    ),
    max_size=5,
)
RUNS = st.lists(st.tuples(ENTITIES, ENTITIES, ENTITIES), min_size=1, max_size=3)


@pytest.mark.long
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    runs=RUNS,
    identity=st.sampled_from(["composite", "first", "stable"]),
    strategy=st.sampled_from(["default", "compact", "list"]),
    survivors=st.sampled_from([{}, {"k": "longest"}, {"m": {"newest": "k"}, "k": "list"}]),
    most=st.sampled_from([2, 3, 50]),
    on_too_many=st.sampled_from(["refuse", "ignore_value"]),
    parts=st.sampled_from([1, 2, 5]),
    one_task_bytes=st.sampled_from([None, 0]),
)
def test_runs_in_tasks_come_to_what_runs_in_one_process_do(
    tmp_path_factory: pytest.TempPathFactory,
    runs: Any,
    identity: str,
    strategy: str,
    survivors: Any,
    most: int,
    on_too_many: str,
    parts: int,
    one_task_bytes: int | None,
) -> None:
    """Rows, `_updated`, signatures, reports, what is refused, and what the table remembers."""
    folder = tmp_path_factory.mktemp("both")
    both = Both(folder)
    chosen = spec(
        "A a",
        "B b",
        "C c",
        equality=[
            *ON_K,
            ["eq", "b.m", ["lower", "c.k"]],
            ["eq", "a._id", "c.$ids"],
            ["eq", "c.k", "c.k"],
            ["eq", "c.m", "c.m"],
        ],
        identity=identity,
        strategy=strategy,
        survivors=survivors,
        max_merged=most,
        on_too_many=on_too_many,
    )
    for a, b, c in runs:
        write(folder, {"A": a, "B": b, "C": c})
        both.run(chosen, parts=parts, one_task_bytes=one_task_bytes)
    both.run(chosen, full=True, parts=parts, one_task_bytes=one_task_bytes)


@pytest.fixture
def both(tmp_path: Path) -> Both:
    return Both(tmp_path)


class TestRuns:
    def test_an_unchanged_rerun_and_a_dry_run_commit_nothing(
        self, both: Both, tmp_path: Path
    ) -> None:
        write(tmp_path, {"A": [{"_id": "1", "k": 1}], "B": [{"_id": "2", "k": 1}]})
        chosen = spec("A a", "B b", equality=ON_K)
        look = run_in_tasks(chosen, both.many, tmp_path, dry_run=True)
        assert (look.new, look.next_updated, CommitLog(both.many).refresh().version) == (1, 1, 0)
        assert run_in_tasks(chosen, None, tmp_path, dry_run=True).new == 1
        both.run(chosen)
        assert "version=1" in both.run(chosen)
        both.run(spec("A z", "B b", equality=[["eq", "z.k", "b.k"]]))
        assert CommitLog(both.many).refresh().version == 2

    def test_too_many_changes_are_refused(self, both: Both, tmp_path: Path) -> None:
        write(tmp_path, {"A": [{"_id": str(n), "k": n} for n in range(9)], "B": []})
        chosen = spec("A a", "B b", equality=ON_K, min_ended=1)
        both.run(chosen, allow_changes=False)
        write(tmp_path, {"A": [{"_id": str(n), "k": n, "_deleted": n < 2} for n in range(9)]})
        assert "2 of the table's 9" in both.run(chosen, allow_changes=False)
        write(tmp_path, {"A": [{"_id": str(n), "k": n} for n in range(1, 9)]})
        assert "replaced=1" in both.run(chosen, allow_changes=False)
        (tmp_path / "B.ndjson").unlink()
        assert "dataset B is not there" in both.run(chosen, allow_changes=False)

    def test_ids_longer_than_a_sort_key_may_be(self, both: Both, tmp_path: Path) -> None:
        names = [f"{'x' * 3000}{n}" for n in range(400)]
        write(tmp_path, {"A": [{"_id": "a", "k": 1}], "B": [{"_id": n, "k": 1} for n in names]})
        chosen = spec("A a", "B b", equality=ON_K)
        both.run(chosen)
        assert len(rows(both.many)[0]["_id"]) > 1 << 20
        write(tmp_path, {"B": [{"_id": n, "k": n} for n in names]})
        assert "replaced=1" in both.run(chosen)

    def test_all_entities_gone_leave_tombstones(self, both: Both, tmp_path: Path) -> None:
        write(tmp_path, {"A": [{"_id": str(n), "k": n} for n in range(9)], "B": []})
        chosen = spec("A a", "B b", equality=ON_K)
        both.run(chosen)
        write(tmp_path, {"A": []})
        assert "replaced=9" in both.run(chosen)
        (tmp_path / "A.ndjson").unlink()
        (tmp_path / "B.ndjson").unlink()
        assert "missing_datasets=('A', 'B')" in both.run(chosen)

    def test_what_an_earlier_merge_replaced_is_no_entity(self, both: Both, tmp_path: Path) -> None:
        write(tmp_path, {"A": [{"_id": str(n), "_deleted": True, "$replaced": True} for n in "12"]})
        assert "entities_read=0" in both.run(spec("A a"), parts=1)
        write(tmp_path, {"A": [{"_id": "1", "_deleted": True, "$replaced": True}, {"_id": "2"}]})
        assert "entities_read=1" in both.run(spec("A a"), parts=7)

    def test_an_initial_dataset_is_waited_for(self, both: Both, tmp_path: Path) -> None:
        write(tmp_path, {"A": [{"_id": "1"}]})
        assert "waiting_for=('B',)" in both.run(
            spec("A a", "B b", initial_datasets=["B"], ignore_non_existent_datasets=False)
        )

    def test_files_of_a_pattern_and_ids_of_columns(self, both: Both, tmp_path: Path) -> None:
        write(tmp_path, {"crm-2": [{"n": 1, "s": "x", "k": 9}, {"n": 2, "s": "x", "k": 2}]})
        (tmp_path / "crm-1.json").write_text('[{"n": 1, "s": "x", "k": 1},\n]')
        write(tmp_path, {"B": [{"n": 7, "s": 8, "k": 2}, {"n": 7, "s": 9, "k": 9}]})
        chosen = spec(
            "A a",
            "B b",
            equality=[*ON_K, ["eq", "a.s", "a.s"]],
            id=["n", "s"],
            sources={"A": f"{tmp_path}/crm-*"},
        )
        both.run(chosen)
        assert [row["_id"] for row in rows(both.many)] == ["0|1:x|0|2:x|1|7:8|1|7:9"]
        write(tmp_path, {"crm-2": [{"n": 2, "s": "x"}, {"n": 2}]})
        assert "crm-2.ndjson, line 2: `n` or `s` is missing" in both.run(chosen)

    def test_files_in_a_store_are_datasets(
        self, both: Both, tmp_path: Path, s3_bucket: str
    ) -> None:
        store = open_store(f"s3://{s3_bucket}")
        store.create("crm/1.csv", b"_id,k\nx,1\n")
        store.create("crm/2.json", b'[{"_id": "y", "k": "2"}]')
        write(tmp_path, {"B": [{"_id": "b", "k": ["1", "2"]}]})
        sources = {"A": f"s3://{s3_bucket}/crm/*"}
        both.run(spec("A a", "B b", equality=ON_K, sources=sources))
        assert [row["_id"] for row in rows(both.many)] == ["0|x|0|y|1|b"]

    def test_tables_are_datasets_too(self, both: Both, tmp_path: Path) -> None:
        write(tmp_path, {"A": [{"_id": "1", "k": [1, 2]}], "B": [{"_id": "2", "k": 2}]})
        both.run(spec("A a", "B b", equality=ON_K))
        write(tmp_path, {"C": [{"_id": "c", "k": 1}]})
        again = Both(tmp_path / "again")
        again._folder = tmp_path
        sources = {"M": str(tmp_path / "one")}
        again.run(spec("M m", "C c", equality=[["eq", "m.k", "c.k"]], sources=sources))
        assert [row["$ids"] for row in rows(again.many)] == [["1", "2", "c"]]

    def test_a_value_of_many_entities_is_a_row_for_each_home(
        self, both: Both, tmp_path: Path
    ) -> None:
        many = [{"_id": f"a{n}", "k": "same"} for n in range(300)]
        write(tmp_path, {"A": many, "B": [{"_id": "b", "k": "same"}]})
        both.run(spec("A a", "B b", equality=ON_K))
        assert len(rows(both.many)[0]["$ids"]) == 301
        context = Context(
            spec=spec("A a", "B b", equality=ON_K),
            names=("A", "B"),
            staging=str(tmp_path / "x"),
            run_id="r",
            memory_limit_bytes=1 << 30,
        )
        lines = pa.RecordBatch.from_pydict(
            {
                "_id": pa.array([f'"a{n}"' for n in range(300)], pa.large_string()),
                "k": pa.array(['"same"'] * 300, pa.large_string()),
            }
        )
        sent = [m for m in reading.settle(context, 7, [(0, lines)]) if isinstance(m, TaskRows)]
        assert [each.batch.num_rows for each in sent] == [1]

    def test_one_task_connects_up_to_the_border_of_its_memory_and_rounds_beyond(
        self, both: Both, tmp_path: Path
    ) -> None:
        """Nine entities and six edges: the table is the same on both sides."""
        write(tmp_path, {name: [{"_id": f"{name}{n}", "k": n} for n in range(3)] for name in "ABC"})
        chosen = spec("A a", "B b", "C c", equality=[*ON_K, ["eq", "b.k", "c.k"]])
        border = next(size for size in range(2000) if connecting.fits_one_task(9, size))
        assert both.run(chosen, one_task_bytes=border).count("clusters=3") == 1
        one_task = stored(both.many)
        for size, how in (
            (border, "connecting in one task: 6 edges of 9 entities"),
            (border - 1, "connecting in rounds, too many for one task: 6 edges of 9 entities"),
        ):
            steps: list[str] = []
            other = LocalStore(str(tmp_path / f"table-{size}"))
            run_in_tasks(chosen, other, tmp_path, one_task_bytes=size, on_progress=steps.append)
            assert [step for step in steps if step.startswith("connecting ")] == [how]
            assert stored(other) == one_task

    def test_edges_that_close_a_cycle_do_not_travel(self, both: Both, tmp_path: Path) -> None:
        """Two rules find the same two entities."""
        write(
            tmp_path,
            {name: [{"_id": f"{name}{n}", "k": n, "m": n} for n in range(3)] for name in "AB"},
        )
        chosen = spec("A a", "B b", equality=[*ON_K, ["eq", "a.m", "b.m"]])
        steps: list[str] = []
        run_in_tasks(chosen, both.many, tmp_path, parts=1, on_progress=steps.append)
        assert "connecting in one task: 3 edges of 6 entities" in steps


PEOPLE: dict[str, Any] = {
    "A": [{"_id": "a1", "k": 1, "m": 1}, {"_id": "a2", "m": 2}, {"_id": "x"}],
    "B": [
        {"_id": "b1", "k": 1, "m": 2},
        {"_id": "b2", "m": 1},
        {"_id": "b3"},
        {"_id": "x", "_deleted": True},
    ],
}
RULES = [*ON_K, ["eq", "a.m", "b.m"]]


def of_pairs(**chosen: Any) -> EntityMergeSpec:
    return spec("A a", "B b", version=2, equality=RULES, **chosen)


class TestPairs:
    @pytest.mark.parametrize("one_task_bytes", [None, 0], ids=["one task", "rounds"])
    @pytest.mark.parametrize(
        ("chosen", "said"),
        [
            ({"always": [["b3", "A/a2"]]}, "sizes={1: 1, 5: 1}"),
            ({"always": [["b3", "a/x"]]}, "sizes={2: 1, 4: 1}"),
            ({"never": [["b3", "A/x"], ["a1", "a2"]]}, "JobError: never: A/a1 and A/a2"),
            ({"never": [["a1", "a2"]], "on_never": "cut"}, "CutFigures(clusters=1, links=1"),
            ({"never": [["a1", "a2"], ["b2", "a2"]], "on_never": "cut"}, "links=1"),
            ({"never": [["a1", "B/x"], ["b3", "a2"]], "on_never": "cut"}, "clusters=0, links=0"),
            (
                {"always": [["b3", "a2"], ["b3", "a1"]], "never": [["a1", "a2"]], "on_never": "cut"},
                "UsageError: always: B/b3 and A/a1 cannot be one",
            ),
            ({"always": [["x", "a1"]]}, "UsageError: always: 'x' is in several datasets"),
            ({"always": [["b3", "B/b3"]]}, "are one entity"),
            ({"always": [["b3", "z"], ["y", "b1"]]}, "no dataset has an entity 'z', and 1 more"),
            ({"never": [["a1", "a2"]], "on_never": "cut", "max_merged": 3}, "links=1"),
            ({"never": [["a1", "a2"]], "on_never": "cut", "max_merged": 2}, "JobError: 3 entities"),
            ({"never": [["a1", "x"]], "max_merged": 3}, "UsageError: never: 'x'"),
            ({"never": [["a1", "A/x"]], "max_merged": 3}, "JobError: 4 entities"),
        ],
    )  # fmt: skip
    def test_pairs_are_kept_as_in_one_process(
        self,
        both: Both,
        tmp_path: Path,
        chosen: dict[str, Any],
        said: str,
        one_task_bytes: int | None,
    ) -> None:
        write(tmp_path, PEOPLE)
        assert said in both.run(of_pairs(**chosen), one_task_bytes=one_task_bytes)
        assert said.split("Error")[0] in both.run(
            of_pairs(**chosen), parts=1, one_task_bytes=one_task_bytes
        )

    def test_of_several_clusters_the_first_pair_that_always_ties_is_named(
        self, both: Both, tmp_path: Path
    ) -> None:
        """Each cluster is cut in a task of its own."""
        count = 12
        write(tmp_path, {n: [{"_id": f"{n}{i}"} for i in range(count)] for n in "AB"})
        pairs = [[f"A{n}", f"B{n}"] for n in (7, 3, *range(count))]
        chosen = spec("A a", "B b", version=2, always=pairs, never=pairs, on_never="cut")
        assert "UsageError: always: A/A7 and B/B7" in both.run(chosen, parts=7)
        chosen = spec("A a", "B b", version=2, always=pairs, never=pairs)
        said = both.run(chosen, parts=7)
        assert "UsageError: always: A/A7 and B/B7 cannot be one" in said


LINKED: dict[str, Any] = {
    name: [{"_id": f"{name}{n}", "k": [n % 3, "s"], "m": n % 5, "t": n % 2} for n in range(20)]
    for name in "AB"
}


STABLE = spec("A a", "B b", version=2, equality=[*ON_K, ["eq", "a.k", "a.k"]], identity="stable")


class TestStableIds:
    def test_ids_ages_and_replaced_rows_are_those_of_one_process(
        self, both: Both, tmp_path: Path
    ) -> None:
        """Clusters merge, are divided, take ids back, and get a number."""
        both.run(STABLE)
        for a, b in (
            ({"a1": 1, "a2": 2}, {"b1": 3}),
            ({"a1": 1, "a2": 1}, {"b1": 1}),
            ({"a1": 1, "a2": 2}, {"b1": 2}),
            ({"a2": 2}, {"b1": 3, "b2": 2}),
            ({"a1": 1, "a2": None}, {"b1": 3, "b2": 2}),
            ({"a1": 1, "a2": 5}, {"b1": 3, "b2": 2}),
            ({}, {}),
        ):
            for name, links in (("A", a), ("B", b)):
                rows_ = [
                    {"_id": i, "_deleted": True} if k is None else {"_id": i, "k": k}
                    for i, k in links.items()
                ]
                write(tmp_path, {name: rows_})
            both.run(STABLE, parts=5)
            both.run(STABLE, parts=1)
        assert "0|a2~2" in {row["_id"] for row in rows(both.many)}
        write(tmp_path, {"A": [{"_id": "a1", "k": 1}], "B": [{"_id": "b1", "k": 3}]})
        both.run(STABLE, full=True)

    def test_rows_of_another_identity_get_ids_that_stay(self, both: Both, tmp_path: Path) -> None:
        write(tmp_path, {"A": [{"_id": "a1", "k": 1}, {"_id": "a2", "k": 1}], "B": []})
        both.run(spec("A a", "B b", version=2, equality=[["eq", "a.k", "a.k"]]))
        assert "new=1" in both.run(STABLE)
        assert "new=0, changed=0" in both.run(STABLE)


class TestLinks:
    @pytest.mark.parametrize("one_task_bytes", [None, 0], ids=["one task", "rounds"])
    @pytest.mark.parametrize(
        "chosen",
        [
            {},
            {"always": [["A7", "B3"], ["A0", "A1"]]},
            {"never": [["A1", "A6"], ["B1", "A3"], ["B3", "B4"]], "on_never": "cut"},
            {"on_too_many": "ignore_value", "max_merged": 14},
        ],
        ids=["rules", "always", "cut", "put aside"],
    )
    def test_links_and_explanations_are_those_of_one_process(
        self, tmp_path: Path, chosen: dict[str, Any], one_task_bytes: int | None
    ) -> None:
        write(tmp_path, LINKED)
        rules = [["eq", "a.m", "b.m"], ["eq", "b.m", "b.m"]]
        if "on_too_many" in chosen:
            rules = [["eq", "a.k", "b.k"], ["eq", "b.k", "b.k"]]
        asked = spec("A a", "B b", version=2, equality=rules, **chosen)
        run_ = EntityRun(spec=asked, store=None, folder=str(tmp_path))
        one = EntityMerge(run_)
        one.look()
        expected = pa.Table.from_batches(one.links())
        found: list[pa.Table] = []
        run_in_tasks(
            asked,
            None,
            tmp_path,
            dry_run=True,
            one_task_bytes=one_task_bytes,
            on_links=lambda batches: found.append(pa.Table.from_batches(batches, LINKS)),
        )
        assert len(expected)
        assert found[0].to_pylist() == expected.to_pylist()
        for names in (["A1"], ["A1", "B6"], ["A1", "A6"], ["A3", "b/B3"], ["0|A4|0|A9"]):
            merge = SparkEntityMerge(run_, connector=FakeConnector(), one_task_bytes=one_task_bytes)
            spark = FakeSpark()
            explained = merge.explain(names, as_session(spark), SparkOptions(None, 3))
            assert explained == EntityMerge(run_).explain(names)
            assert bool(explained.cuts) == ("never" in chosen and names == ["A1", "A6"])
            assert spark.kept == 0

    def test_what_cannot_be_explained_is_refused_alike(self, tmp_path: Path) -> None:
        write(tmp_path, PEOPLE)
        run_ = EntityRun(
            spec=of_pairs(never=[["a1", "a2"]], max_merged=2), store=None, folder=str(tmp_path)
        )
        for names in (["nothing"], ["x"], ["9|a1"], ["a1", "x"]):
            with refuses(UsageError) as one:
                EntityMerge(run_).explain(names)
            with refuses(UsageError) as many:
                SparkEntityMerge(run_).explain(
                    names, as_session(FakeSpark()), SparkOptions(None, 3)
                )
            assert str(one.value) == str(many.value)
        for names in (["a1"], ["a1", "a2"], ["B/x"], ["b3", "b1"]):
            many_ = SparkEntityMerge(run_).explain(
                names, as_session(FakeSpark()), SparkOptions(None, 3)
            )
            assert many_ == EntityMerge(run_).explain(names)
        (tmp_path / "B.ndjson").unlink()
        waits = of_pairs(ignore_non_existent_datasets=False)
        with refuses(UsageError, "waiting for B"):
            SparkEntityMerge(EntityRun(spec=waits, store=None, folder=str(tmp_path))).explain(
                ["a1"], as_session(FakeSpark())
            )

    def test_a_run_without_entities_has_no_links(self, tmp_path: Path) -> None:
        found: list[list[Any]] = []
        write(tmp_path, {"A": []})
        chosen = spec("A a", version=2)
        run_in_tasks(chosen, None, tmp_path, dry_run=True, on_links=lambda b: found.append(list(b)))
        assert found == [[]]


class TestRefused:
    def test_too_many_that_would_be_one_before_anything_is_folded(
        self, both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        a = [{"_id": f"a{n}", "k": n // 4} for n in range(12)]
        write(tmp_path, {"A": a, "B": [{"_id": f"b{n}", "k": n} for n in range(3)]})
        chosen = spec("A a", "B b", equality=ON_K, max_merged=4)
        says(both.run(chosen))
        both.run(chosen, one_task_bytes=0)
        assert CommitLog(both.many).refresh().version == 0
        monkeypatch.setattr(matching, "label", None)
        with refuses(JobError):
            run_in_tasks(chosen, both.many, tmp_path)

    def test_a_value_put_aside_links_nothing_and_is_named_for_no_cluster(
        self, both: Both, tmp_path: Path
    ) -> None:
        many = [{"_id": f"a{n}", "k": ["n/a", n % 3]} for n in range(8)]
        write(tmp_path, {"A": many, "B": [{"_id": f"b{n}", "k": ["n/a", n]} for n in range(3)]})
        chosen = spec("A a", "B b", equality=ON_K, max_merged=4, on_too_many="ignore_value")
        said = both.run(chosen)
        assert "put_aside=AsideFigures(values=1, entities=11" in said
        assert len(rows(both.many)) == 3
        write(tmp_path, {"B": [{"_id": "b", "k": ["n/a", 0, 1, 2]}]})
        refused = both.run(chosen)
        assert refused.startswith("JobError: 9 entities would become one")
        assert "the commonest value is 0 by" in refused

    @pytest.mark.parametrize("parts", [1, 7])
    def test_ids_that_collide_across_tasks(self, both: Both, tmp_path: Path, parts: int) -> None:
        write(tmp_path, {"A": [{"_id": "x"}, {"_id": "y"}], "B": [{"_id": "x"}]})
        said = both.run(spec("A a", "B b", identity="first"), parts=parts)
        assert "A.ndjson), line 1 and dataset B" in said
        assert "line 1 have the id 'x' and are not the same" in said
        write(
            tmp_path,
            {
                "A": [{"_id": "1", "k": 1}, {"_id": "1|1|2"}],
                "B": [{"_id": "2", "k": 1}],
            },
        )
        chosen = spec("A a", "B b", equality=ON_K)
        assert "id '0|1|1|2'" in both.run(chosen, parts=parts)
        assert CommitLog(both.many).refresh().version == 0

    def test_a_deleted_entity_whose_id_is_anothers_does_not_come_out(
        self, both: Both, tmp_path: Path
    ) -> None:
        write(
            tmp_path,
            {
                "A": [{"_id": "x", "_deleted": True}, {"_id": "y", "_deleted": True, "n": 1}],
                "B": [{"_id": "x", "n": 2}, {"_id": "y", "_deleted": True, "n": 3}],
            },
        )
        assert "clusters=2" in both.run(spec("A a", "B b", identity="first"), parts=7)

    def test_an_entity_without_an_id_is_counted_in_the_whole_dataset(
        self, both: Both, tmp_path: Path
    ) -> None:
        (tmp_path / "A.ndjson").write_text('{"_id":"1"}\n{"_id":"1"}\n{"k":1}\n')
        assert "line 3: `_id` is missing" in both.run(spec("A a"))
        write(tmp_path, {"A": [{"_id": "1"}, {"_id": "1"}, {"_id": "2", "_deleted": "yes"}]})
        assert 'line 3: `_deleted` is "yes": it has to be the boolean' in both.run(spec("A a"))
        write(tmp_path, {"A": [{"_id": "1"}, {"_id": "2", "_deleted": 1}]})
        assert "line 2: `_deleted` is 1: it has to be the boolean" in both.run(spec("A a"))
        (tmp_path / "A.ndjson").unlink()
        (tmp_path / "A.csv").write_text("_id,_deleted\n1,\n2,TRUE\n")
        assert "clusters=2" in both.run(spec("A a"))
        assert [row.get("_deleted") for row in rows(both.many)] == [None, True]
        (tmp_path / "A.csv").unlink()
        write(tmp_path, {"A": [{"_id": "1"}, {"_id": "2", "_deleted": True}]})
        assert "clusters=2" in both.run(spec("A a"))
        assert [row.get("_deleted") for row in rows(both.many)] == [None, True]
        (tmp_path / "A.ndjson").write_text('{"_id":"1","$ids":[1]}\n')
        assert "`$ids` is [1]" in both.run(spec("A a"))
        (tmp_path / "A.ndjson").write_text('{"_id":"1"}\n{"_id":"1"\n')
        with refuses(InputError, "line 2"):
            run_in_tasks(spec("A a"), both.many, tmp_path)

    def test_replaced_ids_and_how_long_they_stay(self, both: Both, tmp_path: Path) -> None:
        chosen = spec("A a", equality=[["eq", "a.k", "a.k"]])
        write(tmp_path, {"A": [{"_id": "1", "k": 1}, {"_id": "2", "k": 1}]})
        both.run(chosen)
        write(tmp_path, {"A": [{"_id": "1", "k": 1}, {"_id": "2", "k": 2}]})
        both.run(chosen, tombstone_retention_seconds=5)
        both.run(chosen, tombstone_retention_seconds=8)
        snapshot = CommitLog(both.many).refresh()
        assert snapshot.table.ttl == Ttl("$replaced_at", 8)
        assert snapshot.version == 3
        times = [row["$replaced_at"] for b in scan(both.many, snapshot) for row in b.to_pylist()]
        assert [time.timestamp() for time in times if time] == [1_700_000_000]

    def test_another_run_meanwhile(
        self, both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(tmp_path, {"A": [{"_id": "1"}]})
        both.run(spec("A a"))
        write(tmp_path, {"A": [{"_id": "2"}]})

        asked = EntityRun(
            spec=spec("A a"), store=both.one, folder=str(tmp_path), allow_changes=True
        )
        merge = SparkEntityMerge(asked, connector=FakeConnector())
        EntityMerge(asked).run()
        before = rows(both.one)
        with refuses(CommitConflictError):
            merge.run(as_session(FakeSpark()))
        assert rows(both.one) == before

    def test_entities_that_one_task_cannot_hold(self, both: Both, tmp_path: Path) -> None:
        write(tmp_path, {"A": [{"_id": str(n), "t": "x" * 1000} for n in range(200)]})
        with refuses(MemoryLimitError, "shuffle_partitions"):
            run_in_tasks(spec("A a"), both.many, tmp_path, memory_limit_bytes=100_000)
        run_in_tasks(spec("A a"), both.many, tmp_path, memory_limit_bytes=400_000, parts=None)
        assert len(rows(both.many)) == 200

    def test_a_cluster_of_machines_needs_a_staging_place(self, both: Both, tmp_path: Path) -> None:
        write(tmp_path, {"A": [{"_id": "1"}]})
        asked = EntityRun(spec=spec("A a"), store=both.many, folder=str(tmp_path))
        merge = SparkEntityMerge(asked, connector=FakeConnector())
        spark = FakeSpark(master="yarn")
        with refuses(UsageError):
            merge.run(as_session(spark))
        staging = tmp_path / "staging"
        merge.run(as_session(spark), SparkOptions(str(staging), 2))
        assert len(rows(both.many)) == 1
        assert not [path for path in staging.rglob("*") if path.is_file()]
