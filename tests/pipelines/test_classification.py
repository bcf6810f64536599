"""Checks the truth tables of docs/reference/pipelines.md: how nodes hold rows, which outputs are live."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compactor.pipelines.classify import classify, is_live, order_of, topological_order
from compactor.pipelines.config import Pipeline, parse_pipeline
from compactor.pipelines.explain import as_dot, as_json, explained
from tests.pipelines.support import sources

OUT = {"out": {"output": {"input": "x", "path": "o.ndjson"}}}
SECOND = {"two": {"output": {"input": "x", "path": "p.ndjson"}}}
TRANSFORMED = {**sources("a"), "t": {"transform": {"input": "a"}}}
WITHIN = {"column": "n", "from": "lo", "to": "hi"}
PAIR = {**sources("a", "b")}


def load(nodes: dict[str, Any]) -> Pipeline:
    return parse_pipeline(json.dumps({"nodes": nodes}), "t.yaml")


def merge(*inputs: str, **settings: Any) -> dict[str, Any]:
    return {"x": {"merge": {"inputs": list(inputs), **settings}}}


# What feeds `out` as node x: (nodes before, form, buffer)
TABLE: dict[str, tuple[dict[str, Any], str, str]] = {
    "source": ({"x": {"source": {"path": "a"}}}, "fused", "streaming"),
    "transform of a source": ({**sources("a"), "x": {"transform": {"input": "a"}}}, "fused", "streaming"),
    "interleave of sources": ({**PAIR, **merge("a", "b", mode="interleave")}, "fused", "streaming"),
    "key merge": ({**PAIR, **merge("a", "b", mode="key", sort_by="n")}, "fused", "streaming"),
    "concat": ({**PAIR, **merge("a", "b")}, "built", "streaming"),
    "interleave of a transform": (
        {**TRANSFORMED, **sources("b"), **merge("t", "b", mode="interleave")}, "built", "streaming",
    ),
    "interleave with a seed": (
        {**PAIR, **merge("a", "b", mode="interleave", interleave_seed=1)}, "built", "streaming",
    ),
    "combine": ({**PAIR, "x": {"combine": {"probe": "a", "build": "b", "on": ["n"]}}}, "fused", "streaming"),
    "sort-merge join": (
        {**PAIR, "x": {"combine": {"probe": "a", "build": "b", "on": ["n"], "method": "sort_merge"}}},
        "materialized", "materialized",
    ),
    "range join": (
        {**PAIR, "x": {"combine": {"probe": "a", "build": "b", "method": "range", "range": WITHIN}}},
        "materialized", "materialized",
    ),
    "as-of join": (
        {**PAIR, "x": {"combine": {"probe": "a", "build": "b", "method": "asof", "at": {"n": "m"}}}},
        "materialized", "materialized",
    ),
    "aggregate of a sort-merge join by its keys": (
        {**PAIR,
         "j": {"combine": {"probe": "a", "build": "b", "on": {"n": "k", "m": "l"}, "method": "sort_merge"}},
         "x": {"aggregate": {"input": "j", "group_by": ["m", "n"], "columns": {"c": "count"}}}},
        "built", "streaming",
    ),
    "aggregate of a hash join by its keys": (
        {**PAIR, "j": {"combine": {"probe": "a", "build": "b", "on": ["n"]}},
         "x": {"aggregate": {"input": "j", "group_by": ["n"], "columns": {"c": "count"}}}},
        "materialized", "materialized",
    ),
    "sort": ({**sources("a"), "x": {"sort": {"input": "a", "by": "n"}}}, "materialized", "materialized"),
    "aggregate of sorted rows": (
        {**sources("a"), "s": {"sort": {"input": "a", "by": "n:desc,m"}},
         "t": {"transform": {"input": "s", "filter": "n > 1"}},
         "x": {"aggregate": {"input": "t", "group_by": ["m", "n"], "columns": {"c": "count"}}}},
        "built", "streaming",
    ),
    "aggregate of rows sorted by more than the groups": (
        {**sources("a"), "s": {"sort": {"input": "a", "by": "m,n"}},
         "x": {"aggregate": {"input": "s", "group_by": ["n"], "columns": {"c": "count"}}}},
        "materialized", "materialized",
    ),
    "aggregate of sorted rows whose columns were computed anew": (
        {**sources("a"), "s": {"sort": {"input": "a", "by": "n"}},
         "t": {"transform": {"input": "s", "columns": {"n": "-n"}}},
         "x": {"aggregate": {"input": "t", "group_by": ["n"], "columns": {"c": "count"}}}},
        "materialized", "materialized",
    ),
    "aggregate": (
        {**sources("a"), "x": {"aggregate": {"input": "a", "group_by": ["n"], "columns": {"c": "count"}}}},
        "materialized", "materialized",
    ),
    "windowed transform": (
        {**sources("a"), "x": {"transform": {"input": "a", "window": {"order_by": "n"}}}},
        "fused", "streaming",
    ),
    "aggregate over windows of time": (
        {**sources("a"), "x": {"aggregate": {"input": "a", "window": {"column": "t", "size": "1m"},
                                             "columns": {"c": "count"}}}},
        "materialized", "materialized",
    ),
    "aggregate over windows of time, of sorted rows": (
        {**sources("a"), "s": {"sort": {"input": "a", "by": "n"}},
         "x": {"aggregate": {"input": "s", "window": {"column": "t", "size": "1m"}, "group_by": ["n"],
                             "columns": {"c": "count"}}}},
        "materialized", "materialized",
    ),
    "aggregate of rows in a window's order": (
        {**sources("a"),
         "v": {"transform": {"input": "a", "window": {"partition_by": ["n"], "order_by": "t"}}},
         "x": {"aggregate": {"input": "v", "group_by": ["n"], "columns": {"c": "count"}}}},
        "built", "streaming",
    ),
    "aggregate of rows in a window's order whose columns were computed anew": (
        {**sources("a"),
         "v": {"transform": {"input": "a", "window": {"partition_by": ["n"], "order_by": "t"},
                             "columns": {"n": "lag(n)"}}},
         "x": {"aggregate": {"input": "v", "group_by": ["n"], "columns": {"c": "count"}}}},
        "materialized", "materialized",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLE)
def test_what_feeds_one_output_is_held_as_the_table_says(case: str) -> None:
    nodes, form, buffer = TABLE[case]
    found = classify(load({**nodes, **OUT}).nodes)["x"]
    assert (str(found.form), found.form.buffer) == (form, buffer)


@pytest.mark.parametrize("case", TABLE)
def test_an_aggregate_or_a_joins_probe_side_is_fed_as_an_output_is(case: str) -> None:
    nodes, form, _ = TABLE[case]
    if case == "combine":
        form = "built"  # its build side makes room for theirs
    sink = {"o": {"output": {"input": "y", "path": "o.ndjson"}}, **sources("z")}
    aggregate = {"aggregate": {"input": "x", "group_by": ["q"], "columns": {"c": "count"}}}
    joined = {"combine": {"probe": "x", "build": "z", "on": ["n"]}}
    without_z = {name: node for name, node in sink.items() if name != "z"}
    assert str(classify(load({**nodes, "y": aggregate, **without_z}).nodes)["x"].form) == form
    assert str(classify(load({**nodes, "y": joined, **sink}).nodes)["x"].form) == form


@pytest.mark.parametrize("method", ["hash", "sort_merge"])
@pytest.mark.parametrize("case", TABLE)
def test_what_feeds_a_joins_build_side_is_materialized(case: str, method: str) -> None:
    joined = {"combine": {"probe": "z", "build": "x", "on": ["n"], "method": method}}
    sink = {"o": {"output": {"input": "y", "path": "o.ndjson"}}, **sources("z")}
    found = classify(load({**TABLE[case][0], "y": joined, **sink}).nodes)["x"]
    assert str(found.form) == "materialized"
    assert found.why == "the build side of 'y' is complete before the first row is looked up"


@pytest.mark.parametrize("case", TABLE)
def test_what_feeds_two_nodes_is_materialized(case: str) -> None:
    nodes, _, _ = TABLE[case]
    assert str(classify(load({**nodes, **OUT, **SECOND}).nodes)["x"].form) == "materialized"


@pytest.mark.parametrize("case", TABLE)
def test_what_roots_a_window_is_materialized(case: str) -> None:
    nodes, _, _ = TABLE[case]
    rooted = {"w": {"transform": {"input": "x", "window": {"order_by": "n"}}}}
    found = classify(
        load({**nodes, **rooted, "out": {"output": {"input": "w", "path": "o.csv"}}}).nodes
    )
    assert str(found["x"].form) == "materialized"
    assert found["x"].why == "a window is rooted on its rows, that of 'w'"
    assert str(found["w"].form) == "fused"
    without = {
        "w": {"transform": {"input": "x"}},
        "out": {"output": {"input": "w", "path": "o.csv"}},
    }
    assert str(classify(load({**nodes, **without}).nodes)["x"].form) == TABLE[case][1]


@pytest.mark.parametrize(
    ("output", "form"),
    [
        ({"path": "o.csv"}, "fused"),
        ({"path": "o.parquet"}, "fused"),
        ({"path": "o-{}.csv", "split": {"rows": 5}}, "fused"),
        ({"path": "o-{}.csv", "split": {"by": "n"}}, "built"),
        ({"path": "o.frag", "sort_by": "n"}, "built"),
        ({"table": "t", "sort_by": "n"}, "built"),
    ],
)
def test_a_join_streams_to_an_output_that_holds_few_rows(output: dict[str, Any], form: str) -> None:
    nodes, _, _ = TABLE["combine"]
    chosen = {"y": {"transform": {"input": "x", "columns": ["n"]}}}
    for given, more in (("x", {}), ("y", chosen)):
        out = {"out": {"output": {"input": given, **output}}}
        assert str(classify(load({**nodes, **more, **out}).nodes)["x"].form) == form


def test_a_route_streams_with_one_branch_and_not_with_two() -> None:
    route = {"r": {"route": {"input": "a", "branches": {"big": "n > 1"}}}}
    one = {**sources("a"), **route, "out": {"output": {"input": "r.big", "path": "o.csv"}}}
    assert str(classify(load(one).nodes)["r"].form) == "built"
    rooted = {**one, "w": {"transform": {"input": "r.big", "window": {"order_by": "n"}}},
              "out": {"output": {"input": "w", "path": "o.csv"}}}  # fmt: skip
    assert str(classify(load(rooted).nodes)["r"].form) == "materialized"
    route["r"]["route"]["otherwise"] = "rest"
    two = {**sources("a"), **route, "out": {"output": {"input": "r.big", "path": "o.csv"}},
           "two": {"output": {"input": "r.rest", "path": "p.csv"}}}  # fmt: skip
    assert str(classify(load(two).nodes)["r"].form) == "materialized"


LIVE = {**PAIR, **merge("a", "b", mode="interleave"), **OUT}
BROKEN: dict[str, dict[str, Any]] = {
    "its input is not an interleave merge": {**PAIR, **merge("a", "b"), **OUT},
    "its merge has a seed": {**PAIR, **merge("a", "b", mode="interleave", interleave_seed=0), **OUT},
    "its merge takes rows of others than sources of its own": {
        **TRANSFORMED, **sources("b"), **merge("t", "b", mode="interleave"), **OUT,
    },
    "others take rows of its merge": {**LIVE, **SECOND},
    "a table is written in one commit, not row by row": {
        **LIVE, "out": {"output": {"input": "x", "table": "t", "sort_by": "n"}},
    },
    "a fragment is sorted": {**LIVE, "out": {"output": {"input": "x", "path": "o.frag", "sort_by": "n"}}},
    "it is split into several files": {
        **LIVE, "out": {"output": {"input": "x", "path": "o-{}.csv", "split": {"rows": 10}}},
    },
    "it writes a file for each source document": {
        **LIVE, "out": {"output": {"input": "x", "path": "o-{}.csv", "split": {"documents": True}}},
    },
    # Of any source, whether its rows reach the output or not.
    "a source declares a correlation key": {
        **LIVE, "k": {"source": {"path": "k", "correlation_key": "n"}},
        "other": {"output": {"input": "k", "path": "other.csv"}},
    },
}  # fmt: skip


def test_an_output_of_an_interleave_of_sources_alone_is_live() -> None:
    assert is_live("out", load(LIVE).nodes)[0]


@pytest.mark.parametrize("why", BROKEN)
def test_with_any_one_condition_broken_it_is_not(why: str) -> None:
    assert is_live("out", load(BROKEN[why]).nodes) == (False, why)


def test_an_output_of_the_init_phase_is_not_live() -> None:
    pipeline = parse_pipeline(json.dumps({"nodes": LIVE, "init": ["out"]}), "t.yaml")
    assert is_live("out", pipeline.nodes, pipeline.init) == (False, "it is part of the init phase")
    [record] = [r for r in explained(pipeline) if r["node"] == "out"]
    assert (record["form"], record["phase"]) == ("written", "init")


def test_an_output_of_correlated_rows_is_held_and_others_are_not() -> None:
    pipeline = load(BROKEN["a source declares a correlation key"])
    records = {record["node"]: record for record in explained(pipeline)}
    assert (records["other"]["buffer"], records["other"]["form"]) == ("materialized", "held")
    assert records["out"]["form"] == "written"


def test_nodes_are_worked_after_those_that_they_take_rows_from() -> None:
    nodes = {**OUT, **merge("t", "b"), "t": {"transform": {"input": "a"}}, **PAIR}
    assert topological_order(load(nodes).nodes) == ["a", "t", "b", "x", "out"]


SORTED = {"s": {"sort": {"input": "b", "by": "l:desc,k:nulls_first,z"}}}


@pytest.mark.parametrize(
    ("build", "on", "order"),
    [
        ("s", {"n": "k", "m": "l"}, "m:desc,n:nulls_first"),
        ("s", {"n": "k", "m": "z"}, "n,m"),
        ("s", {"m": "l"}, "m:desc"),
        ("b", {"n": "k", "m": "l"}, "n,m"),
    ],
)
def test_a_sort_merge_join_goes_by_the_order_of_keys_that_an_input_is_in(
    build: str, on: dict[str, str], order: str
) -> None:
    join = {"combine": {"probe": "a", "build": build, "on": on, "method": "sort_merge"}}
    used = SORTED if build == "s" else {}
    nodes = load({**PAIR, **used, "x": join, **OUT}).nodes
    assert ",".join(map(str, order_of("x", nodes))) == order


def test_a_join_is_explained_with_its_method() -> None:
    nodes = load({**TABLE["range join"][0], **OUT})
    [record] = [record for record in explained(nodes) if record["node"] == "x"]
    assert (record["kind"], record["why"]) == (
        "combine range",
        "points and intervals are put in order",
    )


def test_what_is_explained_is_what_is_classified() -> None:
    pipeline = load({**BROKEN["its merge takes rows of others than sources of its own"], **SECOND})
    records = {record["node"]: record for record in explained(pipeline)}
    assert {n: r["form"] for n, r in records.items() if n in "abtx"} == {
        name: str(found.form) for name, found in classify(pipeline.nodes).items()
    }
    assert records["out"]["form"] == "written" and records["x"]["buffer"] == "materialized"
    assert json.loads(as_json(pipeline))["nodes"] == list(records.values())
    dot = as_dot(pipeline)
    assert '"x" [shape=box, label="x\\nmerge interleave\\nmaterialized"];' in dot
    assert '"t" -> "x";' in dot and dot.endswith("}")
