"""How pipelines are divided into Spark stages; how rows are divided between tasks."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.errors import ConfigError
from compactor.pipelines import stages
from compactor.pipelines.config import Pipeline, Sort, parse_pipeline
from compactor.pipelines.explain import as_dot, as_json, rows_of_stages
from compactor.pipelines.stages import plan_stages
from compactor.spark.shuffle.exchange import (
    SAMPLED_KEYS,
    ByRange,
    KeySample,
    divided,
    from_bytes,
    splitters,
    to_bytes,
)
from lsm_fragment.keys.sort_schema import parse_sort_schema
from tests.pipelines.support import sources
from tests.support.oracle import stable_sorted
from tests.support.wording import refuses

Nodes = dict[str, Any]
OUT: Nodes = {"out": {"output": {"input": "x", "path": "o.ndjson"}}}


def load(nodes: Nodes, **document: Any) -> Pipeline:
    return parse_pipeline(json.dumps({"nodes": nodes, **document}), "t.yaml")


def shuffles(nodes: Nodes) -> dict[str, str]:
    """By the root of the stage after it."""
    return {stage.roots[0]: str(stage.shuffle) for stage in plan_stages(load(nodes))[1:]}


PAIR = sources("a", "b")
SORT = {"s": {"sort": {"input": "a", "by": "n:desc,m"}}}
# What is node x, and the shuffles of the pipeline, by the node after each.
TABLE: dict[str, tuple[Nodes, dict[str, str]]] = {
    "transform": ({**sources("a"), "x": {"transform": {"input": "a"}}}, {}),
    "concat": ({**PAIR, "x": {"merge": {"inputs": ["a", "b"]}}}, {}),
    "interleave": ({**PAIR, "x": {"merge": {"inputs": ["a", "b"], "mode": "interleave"}}}, {}),
    "seeded interleave": (
        {**PAIR, "x": {"merge": {"inputs": ["a", "b"], "mode": "interleave", "interleave_seed": 1}}},
        {"x": "all rows in one task"},
    ),
    "key merge": (
        {**PAIR, "x": {"merge": {"inputs": ["a", "b"], "mode": "key", "sort_by": "n"}}}, {"x": "range of n"},
    ),
    "sort": ({**sources("a"), "x": {"sort": {"input": "a", "by": "n:desc"}}}, {"x": "range of n:desc"}),
    "aggregate": (
        {**sources("a"),
         "x": {"aggregate": {"input": "a", "group_by": ["m", "n"], "columns": {"c": "count"}}}},
        {"x": "range of m,n"},
    ),
    "aggregate by names with marks": (
        {**sources("a"),
         "x": {"aggregate": {"input": "a", "group_by": ["m,n", "o:desc"], "columns": {"c": "count"}}}},
        {"x": 'range of "m,n","o:desc"'},
    ),
    "aggregate of sorted rows": (
        {**sources("a"), **SORT,
         "x": {"aggregate": {"input": "s", "group_by": ["n"], "columns": {"c": "count"}}}},
        {"s": "range of n:desc,m", "x": "range of n:desc"},
    ),
    "window": (
        {**sources("a"), "x": {"transform": {"input": "a", "columns": {"r": "row_number()"},
                                             "window": {"partition_by": ["m", "n"], "order_by": "o:desc"}}}},
        {"x": "range of m,n"},
    ),
    "window without partitions": (
        {**sources("a"), "x": {"transform": {"input": "a", "columns": {"r": "row_number()"},
                                             "window": {"order_by": "o"}}}},
        {"x": "all rows in one task"},
    ),
    "aggregate over windows of time": (
        {**sources("a"), "x": {"aggregate": {"input": "a", "window": {"column": "t", "size": "5s"},
                                             "columns": {"c": "count"}}}},
        {"x": "all rows in one task"},
    ),
    "combine": (
        {**PAIR, "x": {"combine": {"probe": "a", "build": "b", "on": {"n": "m"}}}}, {"x": "hash of n = m"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_rows_are_shuffled_before_what_needs_those_of_other_tasks(case: str) -> None:
    nodes, expected = TABLE[case]
    assert shuffles({**nodes, **OUT}) == expected


def test_paths_to_a_node_are_in_the_order_of_its_rows() -> None:
    nodes = {
        **sources("a", "b"),
        **SORT,
        "t": {"transform": {"input": "b"}},
        "r": {"route": {"input": "t", "branches": {"y": "n > 1"}}},
        "m": {"merge": {"inputs": ["r.y", "s", "a"]}},
        "x": {"merge": {"inputs": ["t", "m"]}},
        **OUT,
    }
    planned = plan_stages(load(nodes))
    given = [feed for stage in planned for feed in stage.gives if feed.consumer == "out"]
    assert [feed.path for feed in sorted(given, key=lambda feed: feed.number)] == [
        ("b", "t", "x"),
        ("b", "t", "r", "r.y", "m", "x"),
        ("s", "m", "x"),
        ("a", "m", "x"),
    ]
    # What is after a merge runs where the rows are: in the stage of the sources, and in that of the sort.
    assert set(planned[0].nodes) == {"a", "b", "t", "r", "m", "x"}
    assert planned[1].nodes == ("s", "m", "x")


def test_the_build_side_of_a_join_comes_first() -> None:
    nodes, _ = TABLE["combine"]
    assert [feed.root for feed in plan_stages(load({**nodes, **OUT}))[1].takes] == ["b", "a"]


def test_graphs_with_too_many_ways_are_refused() -> None:
    nodes: Nodes = sources("a")
    for level in range(12):
        before = f"m{level - 1}" if level else "a"
        nodes |= {f"{side}{level}": {"transform": {"input": before}} for side in "lr"}
        nodes[f"m{level}"] = {"merge": {"inputs": [f"l{level}", f"r{level}"]}}
    nodes["out"] = {"output": {"input": "m11", "path": "o.ndjson"}}
    with refuses(ConfigError):
        plan_stages(load(nodes))


def test_what_stages_do_not_know_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever setting nodes get, it is refused until its meaning in many tasks is thought of."""
    pipeline = load({**sources("a"), "x": {"sort": {"input": "a", "by": "n"}}, **OUT})
    assert len(plan_stages(pipeline)) == 2
    monkeypatch.setitem(stages._KNOWN, Sort, frozenset({"input"}))
    with refuses(ConfigError):
        plan_stages(pipeline)


REFUSED: dict[str, tuple[Nodes, dict[str, Any]]] = {
    "groups": (
        {"x": {"source": {"path": "a", "correlation_key": "n"}}, **OUT}, {},
    ),
    "an init phase": ({**TABLE["transform"][0], **OUT}, {"init": ["out"]}),
    "several files": (
        {**sources("a"), "o": {"output": {"input": "a", "path": "o-{}.ndjson", "split": {"rows": 5}}}}, {},
    ),
    "a fragment": (
        {**sources("a"), "o": {"output": {"input": "a", "path": "o.frag", "sort_by": "n"}}}, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_needs_one_process_is_refused(case: str) -> None:
    nodes, document = REFUSED[case]
    with refuses(ConfigError):
        plan_stages(load(nodes, **document))


def test_stages_are_explained_as_a_table_json_and_dot() -> None:
    nodes, _ = TABLE["aggregate of sorted rows"]
    pipeline = load({**nodes, **OUT})
    assert rows_of_stages(pipeline) == [
        ["0", "a", "", "none: sources"],
        ["1", "s", "a", "range of n:desc,m"],
        ["2", "x, out", "s", "range of n:desc"],
    ]
    found = json.loads(as_json(pipeline, on_spark=True))["stages"]
    assert found[1] == {
        "stage": 1,
        "nodes": ["s"],
        "shuffle": "range of n:desc,m",
        "takes_from": ["a"],
    }
    assert "stages" not in json.loads(as_json(pipeline))
    assert '"a" -> "s" [label="range of n:desc,m", style=bold];' in as_dot(pipeline, on_spark=True)
    assert "bold" not in as_dot(pipeline)


ROWS = st.lists(
    st.tuples(st.none() | st.integers(-3, 9), st.sampled_from(["", "a", "b", "ab"])), max_size=60
)
SORTS = st.sampled_from(["n,m", "n:desc,m", "m:desc:nulls_first", "n:nulls_first"])


def batch_of(rows: list[tuple[int | None, str]]) -> pa.RecordBatch:
    n, m = zip(*rows, strict=True) if rows else ((), ())
    return pa.RecordBatch.from_arrays(
        [pa.array(n, pa.int64()), pa.array(m, pa.string()), pa.array(range(len(rows)), pa.int64())],
        names=["n", "m", "at"],
    )


@given(
    rows=ROWS, text=SORTS, parts=st.integers(1, 6), sizes=st.lists(st.integers(1, 20), min_size=1)
)
def test_ranges_sorted_one_by_one_are_all_rows_sorted(
    rows: list[tuple[int | None, str]], text: str, parts: int, sizes: list[int]
) -> None:
    sort, batch = parse_sort_schema(text), batch_of(rows)
    sample = KeySample(sort)
    batches = []
    for start in range(0, len(rows), sizes[0]):
        batches.append(batch.slice(start, sizes[0]))
        sample.add(batches[-1])
    keys = sample.keys()
    bounds = splitters([] if keys is None else [(keys, len(rows))], sort, parts)
    if bounds is None:
        assert parts == 1 or not rows
        return
    part_of = ByRange(bounds, sort).part_of(parts)
    found: dict[int, list[pa.RecordBatch]] = {}
    for some in batches:
        for part, of_part in divided(some, part_of(some)):
            found.setdefault(part, []).append(from_bytes(to_bytes([of_part])))
    assert max(found) < parts
    ends = [stable_sorted(pa.Table.from_batches(found[part]), sort) for part in sorted(found)]
    assert pa.concat_tables(ends).equals(stable_sorted(pa.Table.from_batches(batches), sort))


@settings(deadline=None)
@given(sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=8))
def test_a_sample_has_every_so_manieth_row_and_stays_small(sizes: list[int]) -> None:
    sample, start = KeySample(parse_sort_schema("at")), 0
    for size in sizes:
        sample.add(pa.RecordBatch.from_pydict({"at": np.arange(start, start + size)}))
        start += size
    keys = sample.keys()
    taken = [] if keys is None else keys.column(0).to_pylist()
    assert len(taken) <= SAMPLED_KEYS
    assert len(taken) >= min(start, SAMPLED_KEYS // 2)
    stride = taken[1] - taken[0] if len(taken) > 1 else 1
    assert taken == list(range(0, start, stride))


def test_bounds_weigh_samples_by_the_rows_they_stand_for() -> None:
    """A hundred keys of a hundred rows, a hundred of ten thousand: half of all rows lie among the latter."""
    few = pa.RecordBatch.from_pydict({"n": np.arange(100)})
    many = pa.RecordBatch.from_pydict({"n": np.arange(1000, 1100)})
    bounds = splitters([(few, 100), (many, 10_000)], parse_sort_schema("n"), 2)
    assert bounds is not None
    assert bounds.column(0).to_pylist() == [1049]
