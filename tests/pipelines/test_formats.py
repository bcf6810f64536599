"""Files of other kinds as sources and outputs of pipelines: lines, fixed width, XML, segments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compactor.errors import ConfigError, InputError
from compactor.pipelines.binding import UnserializableMapValue
from compactor.pipelines.config import parse_pipeline
from compactor.pipelines.pipeline_run import PipelineRun
from tests.pipelines.support import lines_of, run_of, sources
from tests.support.wording import refuses

SAMPLES = Path(__file__).parents[1] / "files" / "samples"
LOG = (
    "2024-01-31T10:00:00Z INFO web started in 12 ms\n"
    "2024-01-31T10:00:01Z ERROR db it broke\n"
    "java.lang.IllegalStateException\n"
    "\tat Main.run\n"
    "2024-01-31T10:00:02Z INFO web stopped\n"
)
GROK = "%{TIMESTAMP_ISO8601:at} %{LOGLEVEL:level} %{WORD:service} %{GREEDYDATA:message}"
FIXED = {"columns": [{"name": "service", "width": 6}, {"name": "n", "width": 4, "align": "right"}]}


def ran(nodes: dict[str, Any], **more: Any) -> Any:
    return PipelineRun(parse_pipeline(json.dumps({"nodes": nodes, **more}), "x.yaml")).run()


def test_lines_of_a_log_are_parsed_joined_and_routed(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text(LOG)
    (tmp_path / "owners.txt").write_text("web      1\ndb       2\n")
    nodes = {
        "log": {"source": {"path": str(tmp_path / "app.log"),
                           "lines": {"pattern": GROK, "multiline": {"starts_with": r"\d{4}-"}}}},
        "owners": {"source": {"path": str(tmp_path / "owners.txt"), "fixed": FIXED}},
        "both": {"combine": {"probe": "log", "build": "owners", "on": ["service"]}},
        "kind": {"route": {"input": "both", "branches": {"bad": "level = 'ERROR'"}, "otherwise": "ok"}},
        "bad": {"output": {"input": "kind.bad", "path": str(tmp_path / "bad.ndjson")}},
        "ok": {"output": {"input": "kind.ok", "path": str(tmp_path / "ok.ndjson")}},
    }  # fmt: skip
    ran(nodes)
    [bad] = lines_of(tmp_path / "bad.ndjson")
    assert (bad["at"], bad["n"]) == ("2024-01-31T10:00:01.000000Z", 2)
    assert bad["message"] == "it broke\njava.lang.IllegalStateException\n\tat Main.run"
    assert [row["n"] for row in lines_of(tmp_path / "ok.ndjson")] == [1, 1]


def test_lines_that_do_not_match_are_dead_letters(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text(LOG)
    nodes = {
        "log": {"source": {"path": str(tmp_path / "app.log"), "lines": {"pattern": GROK}}},
        "out": {"output": {"input": "log", "path": str(tmp_path / "out.ndjson")}},
    }
    with refuses(InputError, "line 3"):
        ran(nodes)
    letters = tmp_path / "bad.ndjson"
    report = ran(nodes, on_error="continue", dead_letter=str(letters))
    assert [(row["row"], row["source"]) for row in lines_of(letters)] == [(3, "log"), (4, "log")]
    assert (report.dlq_count, len(lines_of(tmp_path / "out.ndjson"))) == (2, 3)


def test_fields_give_the_types_of_lines(tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("007 1\n008 2\n")
    source = {
        "path": str(tmp_path / "app.log"),
        "lines": {"pattern": "%{INT:n} %{INT:m}"},
        "fields": {"n": "BIGINT", "m": "TEXT"},
    }
    nodes = {
        "log": {"source": source},
        "out": {"output": {"input": "log", "path": str(tmp_path / "out.ndjson")}},
    }
    with refuses(InputError, "'007'"):
        ran(nodes)
    source["fields"] = {"n": "TEXT", "m": "TEXT"}
    ran(nodes)
    assert lines_of(tmp_path / "out.ndjson")[0] == {"n": "007", "m": "1"}


@pytest.mark.parametrize("name", ["order.edifact", "claim.x12", "admission.hl7"])
def test_segments_pass_through_a_pipeline_with_the_same_bytes(name: str, tmp_path: Path) -> None:
    nodes = {
        "in": {"source": {"path": str(SAMPLES / name)}},
        "t": {"transform": {"input": "in", "columns": ["tag", "elements", "repeats"]}},
        "out": {"output": {"input": "t", "path": str(tmp_path / name)}},
    }
    ran(nodes)
    assert (tmp_path / name).read_bytes() == (SAMPLES / name).read_bytes()


def test_xml_goes_through_a_pipeline(tmp_path: Path) -> None:
    (tmp_path / "in.xml").write_text("<o><i n='1'><t>a</t></i><i n='2'><t>b</t><t>c</t></i></o>")
    nodes = {
        "in": {"source": {"path": str(tmp_path / "in.xml"), "xml": {"row": "o/i"}}},
        "t": {"transform": {"input": "in", "filter": "n > 1"}},
        "out": {"output": {"input": "t", "path": str(tmp_path / "out.xml")}},
    }
    ran(nodes)
    written = (tmp_path / "out.xml").read_text()
    assert "<row><n>2</n><t><item>b</item><item>c</item></t></row>" in written
    nodes = {
        "in": {"source": {"path": str(tmp_path / "out.xml")}},
        "out": {"output": {"input": "in", "path": str(tmp_path / "out.ndjson")}},
    }
    ran(nodes)
    assert lines_of(tmp_path / "out.ndjson") == [{"n": 2, "t": ["b", "c"]}]


def test_columns_of_fixed_width_are_written_in_their_places(tmp_path: Path) -> None:
    nodes = {
        **sources("a"),
        "out": {"output": {"input": "a", "path": str(tmp_path / "out.txt"), "fixed": FIXED}},
    }
    run_of(nodes, {"a": pa.table({"n": [1, 20], "service": ["web", None]})}).run()
    assert (tmp_path / "out.txt").read_text() == "web      1\n        20\n"
    with refuses(InputError, "row 2", "'n'"):
        run_of(nodes, {"a": pa.table({"n": [1, 12345], "service": ["web", None]})}).run()
    for table in (pa.table({"n": [1]}), pa.table({"n": [1], "service": ["a"], "x": [1]})):
        with refuses(ConfigError, "line 1", "node 'out'"):
            run_of(nodes, {"a": table})


@pytest.mark.parametrize(
    ("ending", "name"),
    [
        ("csv", "csv"), ("xml", "xml"), ("txt", "fixed-width"), ("edifact", "edifact"), ("x12", "x12"),
        ("hl7.gz", "hl7"),
    ],
)  # fmt: skip
def test_writers_without_maps_refuse_them_before_anything_runs(
    ending: str, name: str, tmp_path: Path
) -> None:
    maps = pa.array([[("x", 1)]], pa.map_(pa.string(), pa.int64()))
    lists = pa.array([[{"m": maps[0]}]], pa.list_(pa.struct({"m": maps.type})))
    table = pa.table({"n": [1], "deep": lists})
    output: dict[str, Any] = {"input": "a", "path": str(tmp_path / f"out.{ending}")}
    if ending == "txt":
        output["fixed"] = FIXED
    with refuses(UnserializableMapValue, "line 1", "node 'out'", f"format: {name}") as caught:
        run_of({**sources("a"), "out": {"output": output}}, {"a": table})
    assert (caught.value.format, caught.value.column) == (name, "deep")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"lines": {"pattern": r"\S+"}},
        {"lines": {"pattern": "%{NUMBR:n}"}},
        {"lines": {"pattern": "%{INT:n}", "multiline": {"starts_with": "(?=a)"}}},
        {"lines": {}},
        {"fixed": {"columns": []}},
        {"fixed": {"columns": [{"name": "a"}]}},
        {"fixed": {"columns": [{"name": "a", "width": 2}, {"name": "a", "width": 2}]}},
        {"fixed": {"columns": [{"name": "a", "width": 2}, {"name": "b", "start": 2, "width": 2}]}},
        {"fixed": {"columns": [{"name": "a", "width": 2, "pad": "0"}]}},
        {"fixed": {"columns": [{"name": "a", "width": 2, "type": "MONEY"}]}},
        {"xml": {"row": "a//b"}},
        {"xml": {"row": "a"}, "lines": {"pattern": "%{INT:n}"}},
    ],
)
def test_a_mistake_in_a_layout_is_named_with_its_line(settings: dict[str, Any]) -> None:
    document = {"nodes": {"a": {"source": {"path": "a.txt", **settings}}}}
    with refuses(ConfigError, "line ", "node 'a'"):
        parse_pipeline(json.dumps(document, indent=1), "x.yaml")


def test_a_layout_is_for_files() -> None:
    source = {"table": "t", "xml": {"row": "a"}}
    output = {"input": "a", "table": "t", "fixed": FIXED}
    for node in ({"source": source}, {"output": output}):
        with refuses(ConfigError):
            parse_pipeline(json.dumps({"nodes": {"a": node}}), "x.yaml")
