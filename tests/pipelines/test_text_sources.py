"""Sources and outputs of text files that are not plain CSV."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.errors import ConfigError, DataError, InputError
from compactor.pipelines.config import parse_pipeline
from compactor.pipelines.phases import run_pipeline
from tests.support.wording import refuses


def run(nodes: dict[str, Any], **settings: Any) -> Any:
    return run_pipeline(parse_pipeline(json.dumps({"nodes": nodes, **settings}), "p.yaml"))


def rows_in(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def read(folder: Path, content: bytes, name: str = "a.csv", **source: Any) -> list[Any]:
    (folder / name).write_bytes(content)
    out = folder / "out.ndjson"
    run(
        {
            "a": {"source": {"path": str(folder / name), **source}},
            "o": {"output": {"input": "a", "path": str(out)}},
        }
    )
    return rows_in(out)


def test_a_source_says_how_its_csv_is_written(tmp_path: Path) -> None:
    content = "# Auszug\nid;name;preis\n1;'Müller; Sohn';1,5\n2;;-3\n".encode("cp1252")
    form = {"delimiter": ";", "quote": "'", "decimal": ",", "comment": "#"}
    assert read(tmp_path, content, csv=form, encoding="cp1252") == [
        {"id": 1, "name": "Müller; Sohn", "preis": 1.5},
        {"id": 2, "name": None, "preis": -3.0},
    ]


def test_fields_name_the_columns_of_a_file_without_a_header(tmp_path: Path) -> None:
    form = {"header": False, "delimiter": "\t"}
    assert read(tmp_path, b"1\tx\n", csv=form) == [{"c1": 1, "c2": "x"}]
    fields = {"id": "TEXT", "s": "TEXT"}
    assert read(tmp_path, b"1\tx\n", csv=form, fields=fields) == [{"id": "1", "s": "x"}]


def test_an_output_says_how_its_csv_is_written(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,b\n1,"x;y"\n')
    form = {"delimiter": ";", "quote": "'", "header": False}
    run(
        {
            "a": {"source": {"path": str(tmp_path / "a.csv")}},
            "o": {"output": {"input": "a", "path": str(tmp_path / "o.csv"), "csv": form}},
        }
    )
    assert (tmp_path / "o.csv").read_text() == "1;'x;y'\n"


@pytest.mark.parametrize(
    "source",
    [
        {"path": "a.csv", "csv": {"delimiter": ";;"}},
        {"path": "a.ndjson", "csv": {"delimiter": ";"}},
        {"path": "a.csv", "encoding": "klingon"},
        {"path": "a.csv", "csv": {"delimeter": ";"}},
    ],
)
def test_a_form_that_cannot_be_is_refused_with_its_line(source: dict[str, Any]) -> None:
    text = json.dumps(
        {"nodes": {"a": {"source": source}, "o": {"output": {"input": "a", "path": "o.csv"}}}},
        indent=1,
    )
    with refuses(ConfigError):
        parse_pipeline(text, "p.yaml")


def put_all(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)


@pytest.mark.parametrize("continues", [False, True])
@pytest.mark.parametrize("where", [{}, {"fields": {"n": "DOUBLE"}}])
@pytest.mark.parametrize(
    "files",
    [
        {"1.csv": "", "2.csv": "n,s\n", "3.csv": "n,s\n1,x\n", "4.csv": "", "5.csv": "n,s\n2.5,\n"},
        {"1.ndjson": "", "2.ndjson": '{"n": 1, "s": "x"}\n', "3.ndjson": '\n\n{"n": 2.5}\n'},
        {"1.json": "[]", "2.json": '[{"n": 1, "s": "x"}]', "3.json": '[{"n": 2.5}]'},
        {
            "1.xml": "<a/>",
            "2.xml": "<a><r><n>1</n><s>x</s></r></a>",
            "3.xml": "<a><r><n>2.5</n></r></a>",
        },
    ],
)
def test_empty_files_of_a_pattern_have_no_rows(
    tmp_path: Path, files: dict[str, str], where: dict[str, Any], continues: bool
) -> None:
    put_all(tmp_path, files)
    out = tmp_path / "out.txt.ndjson"
    nodes = {
        "a": {"source": {"path": str(tmp_path / "?.*"), **where}},
        "o": {"output": {"input": "a", "path": str(out)}},
    }
    settings = {"on_error": "continue", "dead_letter": str(tmp_path / "bad.ndjson")}
    report = run(nodes, **(settings if continues else {}))
    assert rows_in(out) == [{"n": 1.0, "s": "x"}, {"n": 2.5, "s": None}]
    assert report.outputs["o"].documents == len(files)


def test_a_column_of_a_file_of_bad_rows_alone_is_text(tmp_path: Path) -> None:
    put_all(tmp_path, {"1.csv": "n,s,t\n1\n", "2.csv": "n,s\n2,x\n"})
    nodes = {
        "a": {"source": {"path": str(tmp_path / "?.csv")}},
        "o": {"output": {"input": "a", "path": str(tmp_path / "out.parquet")}},
    }
    run(nodes, on_error="continue", dead_letter=str(tmp_path / "bad.ndjson"))
    found = pq.read_schema(tmp_path / "out.parquet")
    assert found.types == [pa.int64(), pa.string(), pa.string()]


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.csv", "n\n"), ("a.csv", ""), ("a.ndjson", ""), ("a.json", "[]"), ("a.xml", "<a/>")],
)
def test_a_single_file_without_rows_has_the_declared_columns(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    out = tmp_path / "out.csv"
    nodes: dict[str, Any] = {
        "a": {"source": {"path": str(tmp_path / name), "fields": {"n": "INT"}}},
        "o": {"output": {"input": "a", "path": str(out)}},
    }
    run(nodes)
    assert out.read_text() == '"n"\n'
    del nodes["a"]["source"]["fields"]
    with refuses(InputError, name) as refusal:
        run(nodes)
    assert "`fields`" in str(refusal.value) or name == "a.xml"


def test_files_of_a_pattern_that_all_lack_rows_give_none(tmp_path: Path) -> None:
    put_all(tmp_path, {"1.csv": "n,s\n", "2.csv": ""})
    nodes = {
        "a": {"source": {"path": str(tmp_path / "?.csv")}},
        "o": {"output": {"input": "a", "path": str(tmp_path / "out.csv")}},
    }
    run(nodes)
    assert (tmp_path / "out.csv").read_text() == '"n","s"\n'
    (tmp_path / "1.csv").write_text("")
    with refuses(InputError):
        run(nodes)
    assert (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("pattern", ["*.csv", "[a].csv"])
def test_a_file_without_rows_that_alone_matches_a_pattern_is_empty(
    tmp_path: Path, pattern: str
) -> None:
    put_all(tmp_path, {"a.csv": "n,s\n"})
    nodes: dict[str, Any] = {
        "a": {"source": {"path": str(tmp_path / pattern)}},
        "o": {"output": {"input": "a", "path": str(tmp_path / "out.ndjson")}},
    }
    assert run(nodes).outputs["o"].documents == 1
    assert rows_in(tmp_path / "out.ndjson") == []


def test_other_types_in_another_file_need_fields(tmp_path: Path) -> None:
    put_all(
        tmp_path, {"1.csv": "zip,t\n1,2026-01-01\n", "2.csv": "zip,t\nA1,2026-01-01T10:00:00\n"}
    )
    source: dict[str, Any] = {"path": str(tmp_path / "?.csv")}
    nodes = {
        "a": {"source": source},
        "o": {"output": {"input": "a", "path": str(tmp_path / "o.ndjson")}},
    }
    with refuses(ConfigError):
        run(nodes)
    source |= {"fields": {"zip": "TEXT"}}
    run(nodes)
    assert rows_in(tmp_path / "o.ndjson") == [
        {"zip": "1", "t": "2026-01-01T00:00:00.000000"},
        {"zip": "A1", "t": "2026-01-01T10:00:00.000000"},
    ]


def test_json_of_another_kind_in_another_file_is_text_by_fields(tmp_path: Path) -> None:
    rows = {"1.ndjson": '{"a": 1.50}\n', "2.ndjson": '{"a": "x"}\n', "3.ndjson": '{"a": [1, 2]}\n'}
    put_all(tmp_path, rows)
    source: dict[str, Any] = {"path": str(tmp_path / "?.ndjson")}
    nodes = {
        "a": {"source": source},
        "o": {"output": {"input": "a", "path": str(tmp_path / "o.csv")}},
    }
    with refuses(ConfigError, "`fields`"):
        run(nodes)
    source |= {"fields": {"a": "TEXT"}}
    run(nodes)
    assert (tmp_path / "o.csv").read_text() == '"a"\n"1.50"\n"x"\n"[1, 2]"\n'


@pytest.mark.parametrize("continues", [False, True])
def test_an_integer_that_the_double_of_another_file_does_not_hold_is_told_with_its_row(
    tmp_path: Path, continues: bool
) -> None:
    bad = "x,y\n" * continues
    put_all(tmp_path, {"1.csv": "n\n1.5\n", "2.csv": f"n\n1\n{bad}2\n{2**53 + 1}\n"})
    nodes = {
        "a": {"source": {"path": str(tmp_path / "?.csv")}},
        "o": {"output": {"input": "a", "path": str(tmp_path / "o.ndjson")}},
    }
    settings = {"on_error": "continue", "dead_letter": str(tmp_path / "bad.ndjson")}
    with refuses(DataError, f"2.csv, row {3 + continues}: column 'n'"):
        run(nodes, **(settings if continues else {}))


LOCAL_THEN_ZONED = {
    "a.csv": b"h\n2024-01-01T00:00:00\n2024-01-01T00:00:00+02:00\n",
    "a.ndjson": b'{"h":"2024-01-01T00:00:00"}\n{"h":"2024-01-01T00:00:00+02:00"}\n',
    "a.xml": b"<r><e><h>2024-01-01T00:00:00</h></e><e><h>2024-01-01T00:00:00+02:00</h></e></r>",
}


@pytest.mark.parametrize("name", LOCAL_THEN_ZONED)
def test_a_text_with_a_zone_is_no_value_of_a_field_without_one(tmp_path: Path, name: str) -> None:
    content = LOCAL_THEN_ZONED[name]
    with refuses(InputError, "2024-01-01T00:00:00+02:00"):
        read(tmp_path, content, name, fields={"h": "TIMESTAMP"})
    zoned = read(tmp_path, content, name, fields={"h": "TIMESTAMPTZ"})
    assert [row["h"][:19] for row in zoned] == ["2024-01-01T00:00:00", "2023-12-31T22:00:00"]
