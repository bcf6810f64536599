"""Mistakes in a pipeline's file: the line, the node, and what would be right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from compactor.cli.main import run
from compactor.errors import ConfigError, InputError, UsageError
from compactor.pipelines.config import load_pipeline, parse_pipeline
from compactor.pipelines.config.graph import MAX_CHAIN
from compactor.pipelines.config.load import EXAMPLES
from compactor.pipelines.config.nodes import NODES
from compactor.pipelines.pipeline_run import PipelineRun
from compactor.settings.document import Document
from tests.pipelines.support import numbered, run_of, sources
from tests.support.wording import refuses


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
    ("kind", "settings"),
    [
        ("transform", {"input": "a", "columns": {"y": "n", "x": 1}}),
        ("aggregate", {"input": "a", "columns": {"y": "count", "x": [1]}}),
        ("route", {"input": "a", "branches": {"y": "n > 1", "x": {}}}),
        ("combine", {"probe": "a", "build": "a", "on": {"y": "n", "x": 1}}),
    ],
)
def test_an_entry_of_a_mapping_that_is_no_text_is_named(
    kind: str, settings: dict[str, Any]
) -> None:
    nodes = {"a": {"source": {"path": "a.csv"}}, "n": {kind: settings}}
    with pytest.raises(ConfigError, match=r"node 'n': (columns|branches|on)\.x: input should be"):
        parse_pipeline(json.dumps({"nodes": nodes}), "p.yaml")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("      inputs: [a, b]", "      input: a"),
        ("inputs: [a, b]", "inputs: [a, c]"),
        ("inputs: [a, b]", "inputs: [a, a]"),
        ("inputs: [a, b]", "inputs: []"),
        ("inputs: [a, b]", "inputs: a"),
        ("mode: interleave", "mode: shuffle"),
        ("mode: interleave", "interleave_seed: 4"),
        ("mode: interleave", "mode: key"),
        ("mode: interleave", "mood: x"),
        ("mode: interleave", "colour: x"),
        ("      path: b.csv", "      file: b.csv"),
        ("      path: b.csv", "      columns: [x]"),
        ("      path: b.csv", "      path: b.csv\n      columns: id"),
        ("  both:\n", "  t: {transform: {input: a, columns: id}}\n  both:\n"),
        ("      path: b.csv", "      path: b.csv\n      fields: {amt: [1], n: BIGINT, x: 2}"),
        ("{source: {path: a.ndjson}}", "{reader: {path: x}}"),
        ("{source: {path: a.ndjson}}", "{source: a.ndjson}"),
        ("{source: {path: a.ndjson}}", "{sourse: {path: a.ndjson}}"),
        ("{source: {path: a.ndjson}}", "{type: source}"),
        ("{source: {path: a.ndjson}}", "{type: output, path: a.ndjson}"),
        ("{source: {path: a.ndjson}}", "a.ndjson"),
        ("  out: {output: {input: both, path: out.ndjson}}", ""),
        ("input: both", "input: a"),
        ("input: both", "input: boht"),
        ("limit: 64MiB", "limit: lots"),
        ("limit: 64MiB", "limit: 3"),
        ("{limit: 64MiB}", "64MiB"),
        ("batch_size: 100", "batch_size: 0"),
        ("batch_size: 100", "batch_sise: 1"),
        ("batch_size: 100", "on_error: continue"),
        ("batch_size: 100", "on_error: continue\ndead_letter: ''"),
        ("  b:\n", "  a:\n"),
        ("nodes:", "nodes: ["),
        ("mode: interleave", "mode: [interleave"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line_and_what_would_be_right(old: str, new: str) -> None:
    assert GOOD.count(old) == 1
    with refuses(ConfigError):
        parse_pipeline(GOOD.replace(old, new), "p.yaml")


@pytest.mark.parametrize("kind", NODES)
def test_the_form_that_messages_show_is_right(kind: str) -> None:
    document = Document.parse(f"{kind}: {EXAMPLES[kind]}", "p.yaml")
    assert NODES[kind](**document.root[kind])


def test_nodes_that_go_round_in_a_circle_are_refused() -> None:
    text = GOOD.replace(
        "path: b.csv", "path: b.csv\n  t: {transform: {input: u}}\n  u: {transform: {input: t}}"
    )
    with refuses(ConfigError):
        parse_pipeline(text, "p.yaml")


CHAINED: dict[str, dict[str, Any]] = {
    "sort": {"by": "n"},
    "aggregate": {"group_by": ["from"], "columns": {"n": "max(n)"}},
    "transform": {"filter": "n < 9 AND (n + 1) * 2 < 99"},
}


def chain(kind: str, length: int, path: str) -> dict[str, Any]:
    """As many nodes as `length` in a row: a source, nodes of a kind, and an output."""
    nodes = sources("n0")
    for number in range(1, length - 1):
        nodes[f"n{number}"] = {kind: {"input": f"n{number - 1}", **CHAINED[kind]}}
    return nodes | {"out": {"output": {"input": f"n{length - 2}", "path": path}}}


@pytest.mark.parametrize("kind", CHAINED)
def test_the_longest_chain_that_is_taken_runs(kind: str, tmp_path: Path) -> None:
    nodes = chain(kind, MAX_CHAIN, str(tmp_path / "o.ndjson"))
    report = run_of(nodes, {"n0": numbered("a", 5)}).run()
    assert report.outputs["out"].records_written == (1 if kind == "aggregate" else 5)


@pytest.mark.parametrize("length", [MAX_CHAIN + 1, 1500])
@pytest.mark.parametrize("step", [1, -1])
def test_a_longer_chain_is_refused_before_anything_runs(length: int, step: int) -> None:
    nodes = list(chain("sort", length, "o.ndjson").items())[::step]
    with refuses(ConfigError):
        parse_pipeline(json.dumps({"nodes": dict(nodes)}), "p.yaml")


@pytest.mark.parametrize("text", ["", "nodes: {}", "- 1", "nodes: [a]"])
def test_what_is_no_pipeline_is_refused(text: str) -> None:
    with refuses(ConfigError):
        parse_pipeline(text, "p.yaml")


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    with refuses(ConfigError):
        load_pipeline(str(tmp_path / "nope.yaml"))
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with refuses(ConfigError):
        load_pipeline(str(tmp_path / "x.yaml"))


@pytest.mark.parametrize(
    "node",
    [
        {"transform": {"input": "a", "filter": "m > 1"}},
        {"transform": {"input": "a", "columns": {"x": "n +"}}},
        {"transform": {"input": "a", "columns": {"x": "m + 1"}}},
        {"transform": {"input": "a", "columns": {"x": "lower(n)"}}},
        {"transform": {"input": "a", "columns": {"x": "median(n)"}}},
        {"transform": {"input": "a", "columns": {"x": "cast(n as blob)"}}},
        {"transform": {"input": "a", "columns": {"x": "interval 'a day'"}}},
        {"transform": {"input": "a", "columns": {"x": "interval '2 fortnights'"}}},
        {"sort": {"input": "a", "by": "m"}},
        {"aggregate": {"input": "a", "group_by": ["m"], "columns": {"c": "count"}}},
        {"aggregate": {"input": "a", "group_by": ["n"], "columns": {"c": "mode(n)"}}},
        {"aggregate": {"input": "a", "group_by": ["n"], "columns": {"c": "sum(m)"}}},
        {"aggregate": {"input": "a", "group_by": ["n"], "columns": {"c": "sum(\"from\")"}}},
        within("a", column="m"),
        within("a", to="m"),
        within("a", to="from"),
        asof({"m": "n"}),
        asof({"n": "from"}),
        within("a"),
        within("a", on=["m"]),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_columns_is_refused_before_anything_runs(
    node: dict[str, object], tmp_path: Path
) -> None:
    nodes = {
        **sources("a"),
        "x": node,
        "out": {"output": {"input": "x", "path": str(tmp_path / "o.csv")}},
    }
    with refuses((ConfigError, UsageError)):
        run_of(nodes, {"a": numbered("a", 3)})
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    pipeline = parse_pipeline(GOOD.replace("a.ndjson", str(tmp_path / "nope.ndjson")), "p.yaml")
    with refuses(InputError, "nope.ndjson"):
        PipelineRun(pipeline)


@pytest.mark.parametrize(
    "text",
    [
        "nodes: {1: 2}",
        "null: 2\n" + GOOD,
        "nodes: {a: {source: {null: x}}}",
        "nodes: &x {a: *x}",
        "a: " + "[" * 5000,
        "nodes: !!int abc",
        "nodes: {a: !!python/object:os.system {}}",
        "batch_size: 10000000000000000000000\n" + GOOD.replace("batch_size: 100\n", ""),
        GOOD.replace("64MiB", "\u00b2M"),
        GOOD.replace("mode: interleave", "mode: interleave\n      interleave_seed: -1"),
        GOOD.replace("path: b.csv", "path: b.csv\n      columns: []"),
        GOOD.replace("path: b.csv", "path: b.csv\n      columns: [k, k]"),
        GOOD + "  two: {output: {input: a, path: ./out.ndjson}}\n",
        "dead_letter: out.ndjson\n" + GOOD,
        GOOD.replace("path: out.ndjson", "path: out.ndjson, sort_by: k"),
        GOOD + "  r: {route: {input: a, branches: {x: k > 1}, otherwise: x}}\n",
        GOOD + "  g: {aggregate: {input: a, group_by: [k], columns: {k: count}}}\n",
    ],
)  # fmt: skip
def test_garbage_is_one_clear_line(text: str) -> None:
    with refuses(ConfigError) as caught:
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
    ("old", "new"),
    [
        ("method: range", "method: rainge"),
        ("method: range", "method: hash"),
        ("method: range", "on: [k]"),
        ("method: range", "on: id"),
        ("range: {column: ts, from: begun, to: ended}", "how: left"),
        ("range: {column", "how: full\n      range: {column"),
        (", to: ended", ""),
        ("to: ended", "upto: ended"),
        ("to: ended", "to: ended, open: left"),
        ("to: ended", "to: ended, closed: all"),
        ("{column: ts, from: begun, to: ended}", "ts"),
        ("method: range", "method: asof"),
        ("method: range", "method: range\n      at: {ts: begun}"),
        ("method: range\n      range: {column: ts, from: begun, to: ended}",
         "method: asof\n      at: {ts: begun, x: y}"),
        ("probe: a", "how: outer"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_join_is_named_with_its_line_and_what_would_be_right(
    old: str, new: str
) -> None:
    assert JOIN.count(old) == 1
    with refuses(ConfigError):
        parse_pipeline(JOIN.replace(old, new), "p.yaml")


def test_on_is_a_word_as_any_other() -> None:
    text = GOOD.replace("      inputs: [a, b]\n      mode: interleave", "      x: y").replace(
        "merge:", "combine:"
    )
    text = text.replace("x: y", "probe: a\n      build: b\n      on: [no, 2026-01-02]")
    assert parse_pipeline(text, "p.yaml").nodes["both"].on == ("no", "2026-01-02")


SEVERAL = {
    "settings": (
        "nodes:\n  a: {source: {paht: a.ndjson}}\n  b: {sorce: {path: a.ndjson}}\n"
        "  out: {output: {input: a, path: o.ndjson}}\n",
        ["line 2: node 'a': no setting 'paht'", "line 3: node 'b'"],
    ),
    "settings of a node": (
        "nodes:\n  a:\n    source:\n      fields: 7\n      paht: a.ndjson\n"
        "  out: {output: {input: a, path: o.ndjson}}\n",
        ["line 4: node 'a': fields", "line 5: node 'a': no setting 'paht'"],
    ),
    "types of a list": (
        "nodes:\n- {name: a, type: sourc}\n- {name: b, type: sort, inputs: [a, a]}\n"
        "- {name: out, type: output, inputs: [b], config: {path: o.ndjson}}\n",
        ["line 2: node 'a': no type 'sourc'", "line 3: node 'b': sort has 1 input"],
    ),
    "inputs": (
        "nodes:\n  a: {source: {path: a.ndjson}}\n  b: {sort: {input: aa, by: n}}\n"
        "  out: {output: {input: bb, path: o.ndjson}}\n",
        ["line 3: node 'b'", "line 4: node 'out'"],  # not that nothing takes the rows of `a`
    ),
    "consumers": (
        "nodes:\n  a: {source: {path: a.ndjson}}\n  b: {source: {path: a.ndjson}}\n"
        "  c: {source: {path: a.ndjson}}\n  out: {output: {input: c, path: o.ndjson}}\n",
        ["line 2: node 'a'", "line 3: node 'b'"],
    ),
    "outputs": (
        "nodes:\n  a: {source: {path: a.ndjson}}\n  out: {output: {input: a, path: o.ndjson}}\n"
        "  p: {output: {input: a, path: o.ndjson}}\n  q: {output: {input: a, path: o.ndjson}}\n",
        ["line 4: node 'p': the rows of 'out'", "line 5: node 'q': the rows of 'out'"],
    ),
    "columns": (
        "nodes:\n  a: {source: {path: a.ndjson}}\n  none: {source: {path: none.csv}}\n"
        "  b: {sort: {input: a, by: x}}\n  c: {sort: {input: b, by: y}}\n"
        "  d: {transform: {input: a, filter: z > 1}}\n  m: {merge: {inputs: [c, d, none]}}\n"
        "  out: {output: {input: m, path: o.ndjson}}\n",
        ["line 3: node 'none'", "line 4: node 'b'", "line 6: node 'd'"],  # `c` and `m` may be right
    ),
    "column beside unused ones that would not go together": (
        "nodes:\n  a: {source: {path: a.ndjson}}\n  u: {source: {path: 'u*.ndjson'}}\n"
        "  v: {transform: {input: u, columns: {n: n}}}\n  b: {sort: {input: a, by: x}}\n"
        "  out: {output: {input: v, path: o.ndjson}}\n  p: {output: {input: b, path: p.ndjson}}\n",
        ["line 5: node 'b': sort column 'x' is not in the schema; columns are: n"],
    ),
    "columns of a source whose unused ones would not go together": (
        "nodes:\n  a: {source: {path: a.ndjson}}\n  u: {source: {path: 'u*.ndjson'}}\n"
        "  v: {transform: {input: u, columns: {n: zz}}}\n  b: {sort: {input: a, by: x}}\n"
        "  out: {output: {input: v, path: o.ndjson}}\n  p: {output: {input: b, path: p.ndjson}}\n",
        ["line 4: node 'v': ", "line 5: node 'b': sort column 'x'"],
    ),
    "settings of the pipeline": (
        "nodes:\n  a: {source: {pth: a.ndjson}}\n  out: {output: {input: a, pth: o.ndjson}}\n"
        "batch_size: 0\non_error: ignore\ninit: [out]\n",
        ["line 2: node 'a'", "line 3: node 'out'", "line 4: ", "line 5: "],  # `init` may be right
    ),
    "table": (
        "nodes:\n  a: {source: {path: a.ndjson}}\n  b: {sort: {input: a, by: x}}\n"
        "  t: {source: {table: none}}\n  out: {output: {input: b, path: o.ndjson}}\n"
        "  p: {output: {input: t, path: p.ndjson}}\n",
        ["line 3: node 'b'", "line 4: node 't'"],
    ),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_the_mistakes_of_all_nodes_are_told_at_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.ndjson").write_text('{"n": 1}\n')
    for number, of in enumerate(("1", '"text"'), start=1):
        Path(f"u{number}.ndjson").write_text(f'{{"n": 1, "u": {of}}}\n')
    text, expected = SEVERAL[name]
    Path("p.yaml").write_text(text)
    exit_code = run(["run", "p.yaml", "--check"])
    told = capsys.readouterr().err.splitlines()
    assert len(told) == len(expected)
    for line, start in zip(told, expected, strict=True):
        assert line.startswith(f"compactor: error: p.yaml, {start}")
    assert exit_code == (3 if name == "columns" else 2)
    assert not Path("o.ndjson").exists()


def test_values_of_the_environment_are_hidden_in_all_mistakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECRET", "topsecret99")
    Path("a.ndjson").write_text('{"n": 1}\n')
    source, out = (
        "  a: {source: {path: a.ndjson}}\n",
        "  out: {output: {input: a, path: o.ndjson}}\n",
    )
    for twice in (
        "{source: {path: a.ndjson, format: '${SECRET}'}}",
        "{sort: {input: '${SECRET}', by: n}}",
        "{source: {path: '${SECRET}/none.csv'}}",
    ):
        outs = "".join(f"  o{n}: {{output: {{input: {n}, path: {n}.csv}}}}\n" for n in "bc")
        Path("p.yaml").write_text(f"nodes:\n{source}  b: {twice}\n  c: {twice}\n{outs}{out}")
        run(["run", "p.yaml", "--check"])
        told = capsys.readouterr().err
        assert len(told.splitlines()) == told.count("${SECRET}") == 2
        assert "topsecret99" not in told


def test_no_more_than_twenty_mistakes_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = "".join(f"  n{number}: {{sorce: {{}}}}\n" for number in range(50))
    (tmp_path / "p.yaml").write_text(f"nodes:\n{nodes}")
    assert run(["run", str(tmp_path / "p.yaml")]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 21
    assert told[-1] == "compactor: error: and 30 more mistakes"
