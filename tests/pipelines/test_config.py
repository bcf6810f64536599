"""Mistakes in a pipeline's file: the line, the node, and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from compactor.errors import ConfigError, UsageError
from compactor.pipelines.config import load_pipeline, parse_pipeline
from compactor.pipelines.run import PipelineRun
from tests.pipelines.support import numbered, run_of, sources


def within(side: str, on: list[str] | None = None, **settings: str) -> dict[str, object]:
    interval = {"column": "n", "from": "n", "to": "n", **settings}
    return {
        "combine": {
            "probe": side,
            "build": side,
            "method": "range",
            "on": ["from", "n"] if settings and not on else on or [],
            "range": interval,
        }
    }


def asof(at: dict[str, str]) -> dict[str, object]:
    on = ["from", "n"]
    return {"combine": {"probe": "a", "build": "a", "method": "asof", "on": on, "at": at}}


GOOD = """\
memory: {limit: 64MiB}
batch_size: 100
nodes:
  a: {source: {path: a.ndjson}}
  b:
    source:
      path: b.csv
  both:
    merge:
      inputs: [a, b]
      mode: interleave
  out: {output: {input: both, path: out.ndjson}}
"""


def test_a_pipeline_is_read_with_its_settings() -> None:
    pipeline = parse_pipeline(GOOD, "p.yaml")
    assert list(pipeline.nodes) == ["a", "b", "both", "out"]
    assert (pipeline.memory.limit, pipeline.batch_size) == (64 << 20, 100)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("      inputs: [a, b]", "      input: a",
         r"line 10: node 'both': a merge has `inputs`, a list: `inputs: \[a, b\]`"),
        ("inputs: [a, b]", "inputs: [a, c]", "line 8: node 'both': no node gives 'c'; there are: a, b, both"),
        ("inputs: [a, b]", "inputs: [a, a]", "line 10: node 'both': inputs: 'a' is named twice"),
        ("inputs: [a, b]", "inputs: []", "line 10: node 'both': inputs: .* is empty"),
        ("mode: interleave", "mode: shuffle", "line 11: node 'both': mode: 'shuffle' is none of: concat"),
        ("mode: interleave", "interleave_seed: 4", "line 11: .*needs `mode: interleave`"),
        ("mode: interleave", "mode: key", "line 9: node 'both': `sort_by` goes with `mode: key`"),
        ("mode: interleave", "mood: x", "line 11: node 'both': no setting 'mood'; there are: inputs, mode"),
        ("      path: b.csv", "      file: b.csv", "line 7: node 'b': no setting 'file'"),
        ("      path: b.csv", "      columns: [x]", "line 6: node 'b': give `path` or `table`"),
        ("{source: {path: a.ndjson}}", "{reader: {path: x}}", "line 4: node 'a': 'reader' is none of source"),
        ("{source: {path: a.ndjson}}", "{source: a.ndjson}", "line 4: node 'a': source is a mapping"),
        ("{source: {path: a.ndjson}}", "a.ndjson", "line 4: node 'a' is one of source"),
        ("  out: {output: {input: both, path: out.ndjson}}", "", "line 3: no node is an output"),
        ("input: both", "input: a", "line \\d: node 'bo?t?h?': nothing takes its rows"),
        ("limit: 64MiB", "limit: lots", "line 1: .*: memory: limit: 'lots' is not a size; write 512MiB"),
        ("limit: 64MiB", "limit: 3", "line 1: the pipeline: memory: limit: 3 is too small: 1MiB at least"),
        ("{limit: 64MiB}", "64MiB", "line 1: the pipeline: memory: a mapping, as in `memory: {limit"),
        ("batch_size: 100", "batch_size: 0", "line 2: the pipeline: batch_size: 0 is too small: 1 at least"),
        ("batch_size: 100", "batch_sise: 1", "line 2: the pipeline: no setting 'batch_sise'"),
        ("batch_size: 100", "on_error: continue", "line 2: the pipeline: on_error: continue needs a `dead"),
        ("  b:\n", "  a:\n", "line 5: 'a' comes twice"),
        ("nodes:", "nodes: [", "line \\d+: not YAML"),
        ("mode: interleave", "mode: [interleave", "not YAML"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line_and_what_would_be_right(
    old: str, new: str, message: str
) -> None:
    assert GOOD.count(old) == 1
    with pytest.raises(ConfigError, match=f"p.yaml, {message}|p.yaml.*{message}"):
        parse_pipeline(GOOD.replace(old, new), "p.yaml")


def test_nodes_that_go_round_in_a_circle_are_refused() -> None:
    text = GOOD.replace(
        "path: b.csv", "path: b.csv\n  t: {transform: {input: u}}\n  u: {transform: {input: t}}"
    )
    with pytest.raises(ConfigError, match="line 8: nodes go round in a circle: t -> u -> t"):
        parse_pipeline(text, "p.yaml")


@pytest.mark.parametrize("text", ["", "nodes: {}", "- 1", "nodes: [a]"])
def test_what_is_no_pipeline_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"p.yaml, line 1: "):
        parse_pipeline(text, "p.yaml")


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nope.yaml: No such file"):
        load_pipeline(str(tmp_path / "nope.yaml"))
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_pipeline(str(tmp_path / "x.yaml"))


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"transform": {"input": "a", "filter": "m > 1"}}, "'m'"),
        ({"transform": {"input": "a", "columns": {"x": "n +"}}}, "node 'x': 'n \\+' is not SQL"),
        ({"transform": {"input": "a", "columns": {"x": "m + 1"}}}, "node 'x': no column 'm'; columns"),
        ({"transform": {"input": "a", "columns": {"x": "lower(n)"}}}, "does not fit the columns' types"),
        ({"transform": {"input": "a", "columns": {"x": "median(n)"}}}, "is not understood; known are"),
        ({"transform": {"input": "a", "columns": {"x": "cast(n as blob)"}}}, "no type"),
        ({"transform": {"input": "a", "columns": {"x": "interval 'a day'"}}}, "a whole number of sec"),
        ({"transform": {"input": "a", "columns": {"x": "interval '2 months'"}}}, "INTERVAL '30 minutes'"),
        ({"sort": {"input": "a", "by": "m"}}, "node 'x': sort column 'm'"),
        ({"aggregate": {"input": "a", "group_by": ["m"], "columns": {"c": "count"}}}, "no column 'm' to g"),
        ({"aggregate": {"input": "a", "group_by": ["n"], "columns": {"c": "median(n)"}}}, "is not one of"),
        ({"aggregate": {"input": "a", "group_by": ["n"], "columns": {"c": "sum(m)"}}}, "no column 'm';"),
        ({"aggregate": {"input": "a", "group_by": ["n"], "columns": {"c": "sum(from)"}}}, "node 'x': .*sum"),
        (within("a", column="m"), "node 'x': range.column: the probe side has no column 'm'; it has: from"),
        (within("a", to="m"), "node 'x': range.to: the build side has no column 'm'; it has: "),
        (within("a", to="from"), "node 'x': range.to: 'from' is string, 'n' of the probe side is int64: c"),
        (asof({"m": "n"}), "node 'x': at: the probe side has no column 'm'; it has: from, n"),
        (asof({"n": "from"}), "node 'x': at: 'from' is string, 'n' of the probe side is int64: cast one"),
        (within("a"), "node 'x': both sides have a column 'from'"),
        (within("a", on=["m"]), "node 'x': the probe side has no column 'm'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_columns_is_refused_before_anything_runs(
    node: dict[str, object], message: str, tmp_path: Path
) -> None:
    nodes = {
        **sources("a"),
        "x": node,
        "out": {"output": {"input": "x", "path": str(tmp_path / "o.csv")}},
    }
    with pytest.raises((ConfigError, UsageError), match=message):
        run_of(nodes, {"a": numbered("a", 3)})
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    pipeline = parse_pipeline(GOOD.replace("a.ndjson", str(tmp_path / "nope.ndjson")), "p.yaml")
    with pytest.raises(Exception, match=r"nope\.ndjson"):
        PipelineRun(pipeline)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes: {1: 2}", "1 stands where a name should"),
        ("nodes: {a: {source: {null: x}}}", "'null' stands where a name should"),
        ("nodes: &x {a: *x}", "p.yaml, line 1"),
        ("a: " + "[" * 5000, "p.yaml"),
        ("nodes: !!int abc", "not YAML"),
        ("nodes: {a: !!python/object:os.system {}}", "not YAML"),
        ("batch_size: 10000000000000000000000\n" + GOOD.replace("batch_size: 100\n", ""), "batch_size"),
        (GOOD.replace("64MiB", "\u00b2M"), "is not a size"),
        (GOOD.replace("mode: interleave", "mode: interleave\n      interleave_seed: -1"), "interleave_seed"),
        (GOOD.replace("path: b.csv", "path: b.csv\n      columns: []"), "columns"),
        (GOOD.replace("path: b.csv", "path: b.csv\n      columns: [k, k]"), "columns: 'k' is named twice"),
        (GOOD + "  two: {output: {input: a, path: ./out.ndjson}}\n", "line 13: .*'out' go to the same place"),
        ("dead_letter: out.ndjson\n" + GOOD, "the dead letters go to the same place"),
        (GOOD.replace("path: out.ndjson", "path: out.ndjson, sort_by: k"), "`sort_by` is for tables"),
        (GOOD + "  r: {route: {input: a, branches: {x: k > 1}, otherwise: x}}\n", "'x' is a branch already"),
        (GOOD + "  g: {aggregate: {input: a, group_by: [k], columns: {k: count}}}\n", "column already"),
    ],
)  # fmt: skip
def test_garbage_is_one_clear_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse_pipeline(text, "p.yaml")
    assert "\n" not in str(caught.value)


JOIN = """\
nodes:
  a: {source: {path: a.ndjson}}
  b: {source: {path: b.csv}}
  j:
    combine:
      probe: a
      build: b
      method: range
      range: {column: ts, from: begun, to: ended}
  out: {output: {input: j, path: out.ndjson}}
"""


def test_a_join_is_read_with_its_settings() -> None:
    node = parse_pipeline(JOIN, "p.yaml").nodes["j"]
    assert (node.how, node.on, node.range.begin, node.range.end) == ("inner", (), "begun", "ended")
    assert node.range.closed == "left"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("method: range", "method: rainge", "line 8: node 'j': method: 'rainge' is none of: hash"),
        ("method: range", "method: hash", "line 5: node 'j': `on` is missing"),
        ("method: range", "on: [k]", "line 9: node 'j': `range` needs `method: range`"),
        ("range: {column: ts, from: begun, to: ended}", "how: left", "line 8: node 'j': `range` is missing"),
        ("range: {column", "how: full\n      range: {column", "line 9: node 'j': `how: full` needs `"),
        (", to: ended", "", "line 9: node 'j': range: `to` is missing"),
        ("to: ended", "upto: ended", "line 9: node 'j': range: `to` is missing"),
        ("to: ended", "to: ended, open: left", "line 9: node 'j': range: no setting 'open'; there are: c"),
        ("to: ended", "to: ended, closed: all", "line 9: node 'j': range: closed: 'all' is none of: left"),
        ("{column: ts, from: begun, to: ended}", "ts", "line 9: node 'j': range: "),
        ("method: range", "method: asof", "line 8: node 'j': `at` is missing"),
        ("method: range", "method: range\n      at: {ts: begun}", "line 9: node 'j': `at` needs `m"),
        ("method: range\n      range: {column: ts, from: begun, to: ended}",
         "method: asof\n      at: {ts: begun, x: y}", "line 9: node 'j': `at` is one time of each side"),
        ("probe: a", "how: outer", "line 5: node 'j': `probe` is missing"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_join_is_named_with_its_line_and_what_would_be_right(
    old: str, new: str, message: str
) -> None:
    assert JOIN.count(old) == 1
    with pytest.raises(ConfigError, match=f"p.yaml, {message}"):
        parse_pipeline(JOIN.replace(old, new), "p.yaml")


def test_on_is_a_word_as_any_other() -> None:
    text = GOOD.replace("      inputs: [a, b]\n      mode: interleave", "      x: y").replace(
        "merge:", "combine:"
    )
    text = text.replace("x: y", "probe: a\n      build: b\n      on: [no, 2026-01-02]")
    assert parse_pipeline(text, "p.yaml").nodes["both"].on == ("no", "2026-01-02")
