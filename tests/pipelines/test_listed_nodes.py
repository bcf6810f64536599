"""A graph may be a list of nodes with `name`, `type`, `inputs` and `config`."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from compactor import Table
from compactor.cli.main import run
from compactor.errors import ConfigError
from compactor.pipelines.config import Combine, parse_pipeline
from tests.support.wording import ROOT, refuses


def examples() -> list[str]:
    """Returns the two spellings of the example on the page of pipelines."""
    page = (ROOT / "docs/reference/pipelines.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    return [block for block in blocks if "level IN" in block]


def test_both_spellings_of_the_page_are_one_pipeline() -> None:
    named, listed = (parse_pipeline(text, "errors.yaml") for text in examples())
    assert list(named.nodes) == list(listed.nodes)
    assert named.model_dump() == listed.model_dump()


@pytest.mark.parametrize("example", [0, 1])
def test_the_example_of_the_page_runs(
    example: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_example(example)
    assert run(["run", "errors.yaml"]) == 0
    found = Table.open("errors").scan().to_table()
    assert found.column("service").to_pylist() == ["API", "API"]
    assert found.column("size").to_pylist() == [2, 2]


def write_example(example: int) -> None:
    """Writes the pipeline and its sources to the working folder."""
    rows = [
        ("2026-01-01T00:00:00Z", "api", "ERROR", "no"),
        ("2026-01-01T00:00:01Z", "db", "INFO", ""),
    ]
    row = '{{"timestamp":"{}","service":"{}","level":"{}","message":"{}"}}\n'
    Path("app.ndjson").write_text("".join(row.format(*values) for values in rows))
    header = "timestamp,service,level,message\n"
    Path("web.csv").write_text(header + "".join(",".join(values) + "\n" for values in rows))
    Path("errors.yaml").write_text(examples()[example])


@pytest.mark.parametrize("example", [0, 1])
def test_explain_prints_what_the_page_shows(
    example: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_example(example)
    assert run(["run", "errors.yaml", "--explain"]) == 0
    page = (ROOT / "docs/reference/pipelines.md").read_text()
    shown = page.split("$ compactor run errors.yaml --explain\n")[1].split("```")[0]
    assert capsys.readouterr().out == shown


COMBINE = """\
nodes:
  - {name: a, type: source, config: {path: a.csv}}
  - {name: c, type: combine, inputs: [a, a], config: {on: [k]}}
  - {name: o, type: output, inputs: [c], config: {path: o.csv}}
"""


def test_a_combine_takes_the_probe_side_first() -> None:
    text = COMBINE.replace("inputs: [a, a]", "inputs: [b, a]").replace(
        "nodes:\n", "nodes:\n  - {name: b, type: source, config: {path: b.csv}}\n"
    )
    node = parse_pipeline(text, "p.yaml").nodes["c"]
    assert isinstance(node, Combine)
    assert (node.probe, node.build) == ("b", "a")
    parse_pipeline(COMBINE, "p.yaml")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("nodes:", "nodes: [x]\nother:"),
        ("nodes:", "nodes: []\nother:"),
        ("name: c, ", ""),
        ("type: combine", "type: combin"),
        ("type: combine", "kind: combine"),
        ("inputs: [a, a]", "inputs: [a]"),
        ("inputs: [a, a]", "inputs: a"),
        ("inputs: [a, a], ", ""),
        ("source, config", "source, inputs: [c], config"),
        ("inputs: [c], config: {path", "config: {input: c, path"),
        ("name: o", "name: a"),
        ("{path: o.csv}", "{path: 'o{}.csv', split: {rows: 0}}"),
        ("inputs: [c]", "inputs: [d]"),
        ("{path: o.csv}", "o.csv"),
    ],
)
def test_a_mistake_is_named_with_its_line_in_the_list(old: str, new: str) -> None:
    with refuses(ConfigError, "p.yaml, line "):
        parse_pipeline(COMBINE.replace(old, new, 1), "p.yaml")


ELSEWHERE = """\
pipeline: {name: sales, memory: {limit: 64MiB}}
nodes:
  - type: source
    name: jan
    description: the first month
    config:
      name: jan
      type: csv
      path: jan.csv
      schema:
        - {name: id, type: int}
        - {name: amount, type: nullable(float)}
      options: {delimiter: "|", quote_char: "'", has_header: true, encoding: latin-1}
  - type: source
    name: feb
    config:
      type: json
      path: feb.dat
      schema: [{name: id, type: int}, {name: amount, type: float}]
  - {type: merge, name: both, inputs: [jan, feb], config: {mode: concat}}
  - type: route
    name: split
    input: both
    config: {mode: exclusive, conditions: {high: amount > 5}, default: low}
  - type: sink
    name: high
    input: split.high
    config: {name: high, type: csv, path: high.csv, options: {delimiter: ";"}}
  - {type: combine, name: pairs, input: {build: feb2, probe: split.low}, config: {"on": [id]}}
  - {type: source, name: feb2, config: {type: json, path: feb2.json.gz}}
  - {type: sink, name: low, input: pairs, config: {name: written, type: csv, path: low.csv}}
error_handling: {strategy: continue, dlq: {path: bad.ndjson}, max_group_buffer: 5}
"""

OURS = """\
memory: {limit: 64MiB}
on_error: continue
dead_letter: bad.ndjson
max_group_buffer: 5
nodes:
  jan:
    source:
      path: jan.csv
      fields: {id: BIGINT, amount: DOUBLE}
      only_fields: true
      csv: {delimiter: "|", quote: "'", header: true}
      encoding: latin-1
  feb: {source: {path: feb.dat, format: json, fields: {id: BIGINT, amount: DOUBLE}, only_fields: true}}
  both: {merge: {inputs: [jan, feb], mode: concat}}
  split: {route: {input: both, branches: {high: amount > 5}, otherwise: low}}
  high: {output: {input: split.high, path: high.csv, csv: {delimiter: ";"}}}
  pairs: {combine: {probe: split.low, build: feb2, "on": [id]}}
  feb2: {source: {path: feb2.json.gz}}
  low: {output: {input: pairs, path: low.csv}}
"""


def test_a_list_may_have_other_names_for_kinds_and_settings() -> None:
    theirs, ours = (parse_pipeline(text, "p.yaml") for text in (ELSEWHERE, OURS))
    assert theirs.model_dump() == ours.model_dump()


def test_a_graph_with_other_names_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jan.csv").write_text("id|amount\n1|9\n2|3\n")
    Path("feb.dat").write_text('[{"id": 3, "amount": 1.5}, {"id": "no"}]')
    Path("feb2.json.gz").write_bytes(gzip.compress(b'{"id": 3, "more": "x"}'))
    Path("p.yaml").write_text(ELSEWHERE)
    assert run(["run", "p.yaml"]) == 2
    assert Path("high.csv").read_text() == '"id";"amount"\n1;9.0\n'
    assert Path("low.csv").read_text() == '"id","amount","more"\n3,1.5,"x"\n'
    assert len(Path("bad.ndjson").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: sales", "title: sales"),
        ("{strategy: continue", "{strategy: go_on"),
        ("schema:\n", "fields: {id: TEXT}\n      schema:\n"),
        ("type: nullable(float)", "type: fluid"),
        ("{name: id, type: int}", "{name: id, type: int, long_unique: true}"),
        ("mode: exclusive", "mode: inclusive"),
        ("default: low", "otherwise: rest, default: low"),
        ("input: {build: feb2, probe: split.low}", "input: {a: feb2, b: split.low}"),
        ("input: both", "input: both\n    inputs: [both]"),
        ("input: both", "input: [both]"),
        ("mode: concat", "mode: concat, cxl: emit a = b"),
        ("type: sink, name: low", "type: cull, name: low"),
        ("type: sink, name: low", "type: sinc, name: low"),
    ],
)
def test_a_mistake_under_another_name_is_named_with_its_line(old: str, new: str) -> None:
    with refuses(ConfigError, "p.yaml, line "):
        parse_pipeline(ELSEWHERE.replace(old, new, 1), "p.yaml")
