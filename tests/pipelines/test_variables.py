"""Texts of a pipeline's file come from the environment; their values are never shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from compactor.cli.main import run
from compactor.common.message import Setting
from compactor.errors import CompactorError, ConfigError
from compactor.pipelines.config import load_pipeline, parse_pipeline
from compactor.pipelines.phases import check_pipeline, run_pipeline
from tests.pipelines.support import lines_of
from tests.support.wording import refuses

SECRET = "hunter2-in-a-path"


def written(folder: Path, nodes: dict[str, Any], **settings: Any) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "p.json"
    file.write_text(json.dumps({"nodes": nodes, **settings}, indent=1))
    return file


def copying(source: str, output: str = "out.ndjson", **more: Any) -> dict[str, Any]:
    return {
        "a": {"source": {"path": source, **more}},
        "o": {"output": {"input": "a", "path": output}},
    }


class Done(NamedTuple):
    exit_code: int
    output: str
    """Of both streams."""


def with_column(folder: Path, column: str) -> Path:
    """A pipeline that computes a column of one row."""
    nodes = copying("in.ndjson") | {
        "t": {"transform": {"input": "a", "columns": {"x": column}}},
        "p": {"output": {"input": "t", "path": "p.ndjson"}},
    }
    (folder / "in.ndjson").write_text('{"n": 1}\n')
    return written(folder, nodes)


@pytest.fixture
def ran(capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """`compactor run`."""

    def call(*arguments: str) -> Done:
        capfd.readouterr()
        exit_code = run(["run", *arguments])
        return Done(exit_code, "".join(capfd.readouterr()))

    return call


def test_variables_are_filled_in_in_every_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMIT", "32MiB")
    monkeypatch.setenv("WHO", "o'brien")
    monkeypatch.delenv("NOT_SET", raising=False)
    monkeypatch.setenv("EMPTY", "")
    nodes = {
        "a": {"source": {"path": "${NOT_SET:-in}.ndjson"}},
        "t": {
            "transform": {
                "input": "a",
                "columns": {"cost": "'$${x} ${EMPTY:-none}'", "n": "n"},
            }
        },
        "o": {"output": {"input": "t", "path": "${WHO}${EMPTY}.ndjson"}},
    }
    file = written(tmp_path, nodes, memory={"limit": "${LIMIT}"})
    (tmp_path / "in.ndjson").write_text('{"n": 1}\n')
    pipeline = load_pipeline(str(file))
    assert pipeline.memory.limit == 32 << 20
    run_pipeline(pipeline)
    assert lines_of(tmp_path / "o'brien.ndjson") == [{"cost": "${x} none", "n": 1}]


@pytest.mark.parametrize(
    "text", ["${NOT_SET}", "${NOT_SET", "${}", "${a-b}", "$${ok} ${NOT_SET:+x}", "${NOT_SET:-${X}}"]
)
def test_a_variable_that_is_not_set_or_not_one_is_refused_with_its_line(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    file = f"nodes:\n  a:\n    source:\n      path: '{text}'\n  o: {{output: {{input: a, path: x.csv}}}}\n"
    with refuses(ConfigError, "p.yaml, line 4"):
        parse_pipeline(file, "p.yaml")


@pytest.mark.parametrize(
    "nodes",
    [
        copying("${SECRET}.csv"),
        copying("${SECRET}.unknown"),
        copying("in-${SECRET}*.ndjson"),
        copying("in.ndjson", "${SECRET}/out.csv"),
        copying("in.ndjson", "${SECRET}.unknown"),
        copying("in.ndjson", columns=["${SECRET}"]),
        copying("in.ndjson", format="${SECRET}"),
        copying("in.ndjson", fields={"n": "${SECRET}"}),
        {"a": {"${SECRET}": {"path": "x"}}},
        copying("in.ndjson") | {"${SECRET}": {"sort": {"input": "a", "by": "${SECRET}"}}},
        copying("damaged-${SECRET}.ndjson"),
    ],
)
def test_values_are_not_in_messages(
    nodes: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ran: Callable[..., Done],
) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    file = written(tmp_path, nodes)
    (tmp_path / "in.ndjson").write_text('{"n": 1}\n')
    (tmp_path / f"damaged-{SECRET}.ndjson").write_text('{"n": 1\n')
    with pytest.raises(CompactorError) as caught:
        check_pipeline(load_pipeline(str(file)))
    assert SECRET not in str(caught.value) and "${SECRET}" in str(caught.value)
    done = ran(str(file))
    assert done.exit_code != 0 and SECRET not in done.output


@pytest.mark.parametrize("inside", ["\\", "'", '"', "'\"", "\n", "\\'", "\t€ ë", "\x01"])
@pytest.mark.parametrize(
    "nodes",
    [
        {"a": {"source": {"path": "in.ndjson"}}, "b": {"sort": {"input": "${SECRET}", "by": "n"}}},
        copying("in.ndjson", columns=["${SECRET}"]),
        copying("in.ndjson", format="${SECRET}"),
        copying("${SECRET}.ndjson"),
        copying("in.ndjson") | {"t": {"transform": {"input": "a", "filter": "n = '${SECRET}"}}},
        copying("in.ndjson") | {"t": {"transform": {"input": "a", "filter": "n = ${SECRET}("}}},
    ],
)
def test_no_spelling_of_a_value_is_in_messages_and_explanations(
    nodes: dict[str, Any], inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    ran: Callable[..., Done],
) -> None:  # fmt: skip
    monkeypatch.setenv("SECRET", f"hunter{inside}hunter")
    file = written(tmp_path, nodes)
    (tmp_path / "in.ndjson").write_text('{"n": 1}\n')
    for more in ([], ["--check"], ["--explain", "--format", "json"]):
        assert "hunter" not in ran(str(file), *more).output


@pytest.mark.parametrize(
    ("column", "secret"),
    [
        ("n = '${SECRET}' AND (", "hunter" * 60),
        ("CAST('${SECRET}' AS INT)", "it''s\\hunter"),
        ('"${SECRET}" > 1', 'hunter""q'),
        ("lower('${SECRET}') + 1", "hunter" * 60),
        ("CAST('${SECRET}' AS TIME)", "hunter" * 60),
        ("strptime('${SECRET}', '%Y')", "hunter" * 60),
        ("'${SECRET}' -> '$.a'", "hunter" * 60),
        ("${SECRET}", "DATE 'hunter'"),
    ],
)
def test_values_that_messages_cut_or_unescape_are_not_in_them(
    column: str, secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    ran: Callable[..., Done],
) -> None:  # fmt: skip
    monkeypatch.setenv("SECRET", secret)
    done = ran(str(with_column(tmp_path, column)))
    assert done.exit_code != 0
    assert "hunt" not in done.output and "${SECRET}" in done.output


def test_quotes_that_end_inside_a_default_are_no_texts_of_their_own(
    tmp_path: Path, ran: Callable[..., Done]
) -> None:
    (tmp_path / "it's").mkdir()
    (tmp_path / "it's" / "joe's.ndjson").write_text('{"n": 1}\n')
    nodes = copying("it's/${DIR:-joe's}.ndjson")
    assert ran(str(written(tmp_path, nodes))).exit_code == 0


@pytest.mark.parametrize("secret", ["", " ", "e", "6"])
def test_a_short_value_is_hidden_only_where_it_stands_alone(
    secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Callable[..., Done]
) -> None:
    monkeypatch.setenv("SECRET", secret)
    nodes = copying("in.ndjson") | {"b": {"sort": {"input": "a", "by": "${SECRET}"}}}
    nodes |= {"p": {"output": {"input": "b", "path": "p.ndjson"}}}
    (tmp_path / "in.ndjson").write_text('{"n": 1}\n')
    told = ran(str(written(tmp_path, nodes))).output
    shown = "${SECRET}" if secret.strip() else ""
    assert told.startswith("compactor: error: ")
    assert f"/p.json, line 14: node 'b': sort column '{shown}'" in told


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        ("CAST('${SECRET}' AS INT)", "'${SECRET}'"),
        ("CAST('user-${SECRET}' AS INT)", "'user-${SECRET}'"),
        ('"user ${SECRET}" > 1', "user ${SECRET}"),
        ("${SECRET} > 1", "'${SECRET}'"),
        ("${WHERE}", "'${WHERE}'"),
    ],
)
def test_a_short_value_is_hidden_in_the_text_that_it_is_pasted_into(
    column: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    ran: Callable[..., Done],
) -> None:  # fmt: skip
    monkeypatch.setenv("SECRET", "zqj")
    monkeypatch.setenv("WHERE", "CAST('zqj' AS INT)")
    done = ran(str(with_column(tmp_path, column)))
    assert done.exit_code != 0
    assert "zqj" not in done.output and shown in done.output


@pytest.mark.parametrize("secret", ["nodes", "null", "6", "streaming"])
def test_an_explanation_in_json_keeps_its_form_whatever_values_are(
    secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Callable[..., Done]
) -> None:
    monkeypatch.setenv("SECRET", secret)
    (tmp_path / f"{secret}.ndjson").write_text('{"n": 1}\n')
    done = ran(str(written(tmp_path, copying("${SECRET}.ndjson"))), "--explain", "--format", "json")
    explained = json.loads(done.output)
    assert explained["memory_limit_bytes"] == 512 << 20
    assert [node["node"] for node in explained["nodes"]] == ["a", "o"]


@pytest.mark.parametrize("shape", ["text", "json", "dot"])
@pytest.mark.parametrize("on_spark", [[], ["--master", "local[1]"]])
def test_values_that_name_columns_are_not_in_explanations(
    shape: str, on_spark: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    ran: Callable[..., Done],
) -> None:  # fmt: skip
    monkeypatch.setenv("SECRET", "hunter2")
    nodes = {
        "a": {"source": {"path": "in.ndjson"}},
        "t": {"aggregate": {"input": "a", "group_by": ["${SECRET}"], "columns": {"n": "count"}}},
        "o": {"output": {"input": "t", "path": "out.ndjson"}},
    }
    (tmp_path / "in.ndjson").write_text('{"hunter2": 1, "n": 2}\n')
    done = ran(str(written(tmp_path, nodes)), "--explain", "--format", shape, *on_spark)
    assert done.exit_code == 0
    assert "hunter2" not in done.output


def test_values_are_not_in_explanations_reports_and_dead_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: Callable[..., Done]
) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    nodes = copying("${SECRET}.ndjson", "${SECRET}-out.ndjson")
    file = written(tmp_path, nodes, on_error="continue", dead_letter="bad.ndjson")
    (tmp_path / f"{SECRET}.ndjson").write_text('{"n": 1}\nno\n')
    for shape in ("text", "json", "dot"):
        explained = ran(str(file), "--explain", "--format", shape)
        assert explained.exit_code == 0 and SECRET not in explained.output
    assert "${SECRET}-out.ndjson" in ran(str(file), "--explain", "--format", "json").output
    for more in ([], ["--json"]):
        done = ran(str(file), *more)
        assert done.exit_code == 2 and SECRET not in done.output
    [letter] = lines_of(tmp_path / "bad.ndjson")
    assert "${SECRET}" in letter["reason"] and SECRET not in letter["reason"]
    assert lines_of(tmp_path / f"{SECRET}-out.ndjson") == [{"n": 1}]


def test_paths_begin_at_the_folder_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = copying("./in-?.ndjson") | {
        "b": {"source": {"path": str(tmp_path / "else.ndjson")}},
        "t": {"output": {"input": "b", "table": "table", "sort_by": "n"}},
        "u": {"transform": {"input": "a", "columns": {"n": "1 / n"}}},
        "p": {"output": {"input": "u", "path": "../up.ndjson"}},
    }
    settings = {"on_error": "continue", "dead_letter": "bad.ndjson"}
    file = written(tmp_path / "place", nodes, **settings)
    (tmp_path / "place/in-1.ndjson").write_text('{"n": 0}\n{"n": 2}\n')
    (tmp_path / "else.ndjson").write_text('{"n": 2}\n')
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    run_pipeline(load_pipeline(f"../place/{file.name}"))
    found = {p.name for p in (tmp_path / "place").iterdir()}
    assert found == {"p.json", "in-1.ndjson", "out.ndjson", "bad.ndjson", "table"}
    assert (tmp_path / "up.ndjson").exists() and not list((tmp_path / "cwd").iterdir())


@pytest.mark.parametrize("option", ["--check", "--explain"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("in.ndjson", "missing.ndjson"),
        ("in.ndjson", "in-*.ndjson"),
        ("in.ndjson", "in.txt"),
        ("n > 1", "n >"),
        ("n > 1", "m > 1"),
        ("n > 1", "upper(n)"),
        ("out.csv", "out.txt"),
        ("out.csv", "no/folder/out.csv"),
        ("out.csv", "in.ndjson"),
        ("bad.ndjson", "in.ndjson"),
        ("bad.ndjson", "no/folder/bad.ndjson"),
        ("bad.ndjson", "out.csv"),
    ],
)
def test_mistakes_are_found_with_file_line_and_node_before_a_run(
    option: str, old: str, new: str, tmp_path: Path, ran: Callable[..., Done]
) -> None:
    (tmp_path / "in.ndjson").write_text('{"n": 1}\n')
    (tmp_path / "in.txt").write_text("n\n")
    file = tmp_path / "p.yaml"
    text = (
        "on_error: continue\ndead_letter: bad.ndjson\nnodes:\n"
        "  a: {source: {path: in.ndjson}}\n"
        "  t: {transform: {input: a, filter: 'n > 1'}}\n"
        "  o: {output: {input: t, path: out.csv}}\n"
    )
    file.write_text(text)
    good = ran(str(file), option)
    assert good.exit_code == 0 and (good.output == "") == (option == "--check")
    file.write_text(text.replace(old, new, 1))
    done = ran(str(file), option)
    with refuses(CompactorError, f"{file}, line ") as caught:
        check_pipeline(load_pipeline(str(file)))
    is_of_source = new in ("missing.ndjson", "in-*.ndjson")
    assert done.exit_code == caught.value.exit_code == (3 if is_of_source else 2), done.output
    assert {p.name for p in tmp_path.iterdir()} == {"in.ndjson", "in.txt", "p.yaml"}


def test_check_and_explain_exclude_each_other_and_the_report_of_a_run(
    tmp_path: Path, ran: Callable[..., Done]
) -> None:
    (tmp_path / "in.ndjson").write_text('{"n": 1}\n')
    file = written(tmp_path, copying("in.ndjson"))
    assert ran(str(file), "--check", "--explain").exit_code == 2
    for option in ("--check", "--explain"):
        assert ran(str(file), option, "--json").exit_code == 2


def test_the_pipeline_of_the_reference_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUCKET", "a-bucket")
    page = (Path(__file__).parents[2] / "docs/reference/pipelines.md").read_text()
    block = page.partition("## Places")[2].partition("```yaml\n")[2].partition("```")[0]
    kept = parse_pipeline(block, "p.yaml").nodes["kept"]
    assert kept.path == "s3://a-bucket/slow/today.parquet"


def test_settings_in_messages_keep_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    text = json.dumps({"nodes": copying("${SECRET}.csv")})
    pipeline = parse_pipeline(text, "p.json")
    with pytest.raises(CompactorError) as caught, pipeline.variables.hidden():
        raise ConfigError(f"{SECRET}: raise ", Setting("memory_limit_bytes"))
    assert caught.value.message.named(str.upper) == "${SECRET}: raise MEMORY_LIMIT_BYTES"
