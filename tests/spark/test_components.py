"""Connected components on Spark beside union-find."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from compactor.entities import spark_components as components
from compactor.entities.spark_components import Round, connected_components
from compactor.errors import InputError, JobError, UsageError
from compactor.spark.session import open_session
from tests.support.s3_server import S3Server
from tests.support.wording import refuses

pytestmark = pytest.mark.spark

SCHEMA = "left bigint, right bigint"
Edges = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def spark(s3_server: S3Server) -> Iterator[Any]:
    # The JVM outlives these tests with the environment it began with: that of the S3 server for later ones.
    session = open_session("local[2]")
    # Compiling a plan takes longer than running it does on data this small.
    settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.codegen.wholeStage": "false"}
    for name, value in settings.items():
        session.conf.set(name, value)
    yield session
    for name in settings:
        session.conf.unset(name)


def smallest_by_union_find(left: np.ndarray, right: np.ndarray) -> dict[int, int]:
    parent: dict[int, int] = {}

    def root(node: int) -> int:
        while parent.setdefault(node, node) != node:
            parent[node] = node = parent[parent[node]]
        return node

    for one, other in zip(left.tolist(), right.tolist(), strict=True):
        low, high = sorted((root(one), root(other)))
        parent[high] = low
    return {node: root(node) for node in parent}


def frame_of(spark, edges: Edges) -> Any:
    return spark.createDataFrame(pa.table({"left": edges[0], "right": edges[1]}), SCHEMA)


def run(spark, edges: Edges, folder: Path, **options) -> tuple[dict[int, int], list[Round]]:
    """Component of each node, and the rounds."""
    frame = frame_of(spark, edges)
    rounds: list[Round] = []
    found = connected_components(frame, str(folder), on_round=rounds.append, **options)
    assert found.dtypes == [("node", "bigint"), ("component", "bigint")]
    table = found.toArrow()
    component_of = dict(zip(table["node"].to_pylist(), table["component"].to_pylist(), strict=True))
    assert len(component_of) == table.num_rows, "a node came out twice"
    return component_of, rounds


def chain(nodes: int) -> Edges:
    """0 - 1 - 2 - ..."""
    names = np.arange(nodes, dtype=np.int64)
    return names[:-1], names[1:]


def clusters(seed: int) -> Edges:
    """Of many sizes, with cycles, repeated and reversed edges, loops, negative and extreme nodes."""
    random = np.random.default_rng(seed)
    nodes = random.permutation(4_000) - 2_000
    nodes[:2] = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    size = 1 + random.zipf(2.0, 3_000) % 500
    first = np.minimum(random.integers(0, len(nodes), len(size)), len(nodes) - size)
    left = first + (random.random(len(size)) * size).astype(int)
    right = first + (random.random(len(size)) * size).astype(int)
    left, right = nodes[left], nodes[right]
    return np.concatenate([left, right[:300]]), np.concatenate([right, left[:300]])


def test_components_are_those_of_union_find_however_much_is_left_to_one_task(
    spark, tmp_path: Path
) -> None:
    edges = clusters(0)
    expected = smallest_by_union_find(*edges)
    assert len(set(expected.values())) > 50
    for edges_in_one_task in (0, 1_000, 1_000_000):
        found, rounds = run(spark, edges, tmp_path, edges_in_one_task=edges_in_one_task)
        assert found == expected
        assert [r.in_one_task for r in rounds if r.in_one_task] == [True] * (edges_in_one_task > 0)
        assert (len(rounds) == 1) == (edges_in_one_task == 1_000_000)
        assert [r.number for r in rounds] == list(range(1, len(rounds) + 1))
        links = np.count_nonzero(edges[0] != edges[1])
        assert [r.edges for r in rounds] == [links, *(r.edges_left for r in rounds[:-1])]
        assert rounds[-1].edges_left == 0


def test_a_chain_of_100_000_links_converges_in_logarithmic_rounds(spark, tmp_path: Path) -> None:
    """In the order of its numbers: a parent is twice as far away after each round, and nodes become leaves
    only as it reaches the smallest."""
    spark.conf.set("spark.sql.codegen.wholeStage", "true")  # As many rows in every round.
    try:
        found, rounds = run(spark, chain(100_001), tmp_path, edges_in_one_task=0)
    finally:
        spark.conf.set("spark.sql.codegen.wholeStage", "false")
    assert set(found.values()) == {0}
    assert len(found) == 100_001
    assert rounds[-1].edges_left == 0
    assert len(rounds) <= math.ceil(math.log2(100_001))
    assert all(r.edges_left < r.edges for r in rounds)


def test_of_a_chain_in_random_order_at_most_half_is_left_after_a_round(
    spark, tmp_path: Path
) -> None:
    order = np.random.default_rng(3).permutation(5_000)
    found, rounds = run(spark, (order[:-1], order[1:]), tmp_path, edges_in_one_task=100)
    assert set(found.values()) == {0}
    assert len(rounds) > 3
    assert all(r.edges_left <= r.edges / 2 for r in rounds)


def test_a_hub_of_a_million_beside_two_nodes(spark, tmp_path: Path) -> None:
    hub = 123_456
    leaves = np.delete(np.arange(1_000_001), hub)
    edges = np.append(np.full(len(leaves), hub), 2_000_000), np.append(leaves, 1_999_999)
    frame = frame_of(spark, edges)
    rounds: list[Round] = []
    found = connected_components(
        frame, str(tmp_path), edges_in_one_task=10_000, on_round=rounds.append
    )
    sizes = {row["component"]: row["count"] for row in found.groupBy("component").count().collect()}
    assert sizes == {0: 1_000_001, 1_999_999: 2}
    assert len(rounds) > 1


@pytest.mark.parametrize(("hub", "rounds_needed"), [(0, 1), (9_999, 2)])
def test_a_hub_is_done_in_one_round_or_two(
    spark, tmp_path: Path, hub: int, rounds_needed: int
) -> None:
    """With the smallest number it is everyone's parent; with the greatest all others are its parents, and
    get the smallest as theirs in the first round."""
    leaves = np.delete(np.arange(10_000), hub)
    found, rounds = run(spark, (np.full(len(leaves), hub), leaves), tmp_path, edges_in_one_task=0)
    assert (len(found), set(found.values())) == (10_000, {0})
    assert len(rounds) == rounds_needed


def test_a_leaf_of_a_leaf_finds_the_smallest(spark, tmp_path: Path) -> None:
    """Labels are passed on through every round: trees deeper than any round goes."""
    random = np.random.default_rng(11)
    name = random.permutation(500)
    child = np.arange(1, 500)
    edges = name[child], name[child - 1 - random.integers(0, np.minimum(child, 4))]
    found, rounds = run(spark, edges, tmp_path, edges_in_one_task=0)
    assert len(rounds) > 2
    assert found == smallest_by_union_find(*edges)


def test_a_loop_of_a_node_with_other_edges_adds_no_row(spark, tmp_path: Path) -> None:
    edges = np.array([1, 2, 2, 9, 1]), np.array([2, 2, 3, 9, 1])
    for edges_in_one_task in (0, 10):
        found, _ = run(spark, edges, tmp_path, edges_in_one_task=edges_in_one_task)
        assert found == {1: 1, 2: 1, 3: 1, 9: 9}


def test_neighbours_of_a_node_are_never_brought_together(spark, tmp_path: Path) -> None:
    """No window, list or plain group in any plan of a round: minima begin on the mappers."""
    plans: list[str] = []
    frame = frame_of(spark, chain(8))
    kept = components._Rounds._kept

    def noted(self, result, name, *parted_by):
        plans.append(result._jdf.queryExecution().executedPlan().toString())
        return kept(self, result, name, *parted_by)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(components._Rounds, "_kept", noted)
        connected_components(frame, str(tmp_path), edges_in_one_task=0)
    text = "\n".join(plans)
    assert "partial_min" in text
    assert not any(word in text for word in ("Window", "collect_", "ObjectHashAggregate"))


def test_no_edges_give_no_nodes(spark, tmp_path: Path) -> None:
    none = np.empty(0, np.int64)
    for edges_in_one_task in (0, 10):
        found, rounds = run(spark, (none, none), tmp_path, edges_in_one_task=edges_in_one_task)
        assert (found, rounds) == ({}, [])


def test_loops_alone_are_components_of_one(spark, tmp_path: Path) -> None:
    loops = np.array([5, 5, -7])
    for edges_in_one_task in (0, 10):
        found, _ = run(spark, (loops, loops), tmp_path, edges_in_one_task=edges_in_one_task)
        assert found == {5: 5, -7: -7}


def test_plans_and_inputs_of_earlier_rounds_are_not_needed_later(spark, tmp_path: Path) -> None:
    """What is returned reads labels that are files, and reads them again as often as asked."""
    frame = frame_of(spark, chain(30))
    found = connected_components(frame, str(tmp_path), edges_in_one_task=0)
    folders = {Path(name.removeprefix("file:")).parent.name for name in found.inputFiles()}
    assert folders
    assert all(re.fullmatch(r"labels-\d+|smallest", folder) for folder in folders)
    assert found.count() == found.count() == 30


def test_nulls_are_counted_and_refused(spark, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1, 2), (None, 2), (3, None)], SCHEMA)
    with refuses(InputError):
        connected_components(frame, str(tmp_path))


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        ("left bigint, right int", {}),
        (
            "left bigint, other bigint",
            {},
        ),
        (SCHEMA, {"edges_in_one_task": -1}),
    ],
)
def test_what_does_not_fit_is_named_before_anything_runs(
    spark, tmp_path: Path, schema: str, options: dict[str, Any]
) -> None:
    frame = spark.createDataFrame([], schema)
    with refuses(UsageError):
        connected_components(frame, str(tmp_path), **options)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cant_be_written_is_an_error_in_one_line(spark, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    frame = spark.createDataFrame([(1, 2)], SCHEMA)
    with pytest.raises(JobError, match="ParentNotDirectoryException") as raised:
        connected_components(frame, str(tmp_path / "file"))
    assert "\n" not in str(raised.value)
