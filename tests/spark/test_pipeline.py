"""`compactor run --master`, on Spark itself; what stages do to rows is in test_pipeline_stages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from compactor import Table
from compactor.cli.main import run
from tests.pipelines.support import lines_of

if TYPE_CHECKING:
    pass

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

MASTER = ["--master", "local[2]", "--shuffle-partitions", "3"]
_STARTING = "starting Spark on local[2] ...\n"
NODES = """
nodes:
  app: {source: {path: "IN/app-*.ndjson"}}
  users: {source: {path: IN/users.csv}}
  some: {transform: {input: app, filter: "level <> 'info'"}}
  sorted: {sort: {input: some, by: "who,id:desc"}}
  groups: {aggregate: {input: some, group_by: [level, who], columns: {n: count, last: max(id)}}}
  joined: {combine: {probe: some, build: users, on: [who], how: left}}
  teams: {sort: {input: joined, by: id}}
  o1: {output: {input: sorted, path: OUT/sorted.parquet}}
  o2: {output: {input: groups, path: OUT/groups.csv}}
  o3: {output: {input: teams, path: OUT/teams.ndjson}}
  o4: {output: {input: some, table: TABLE, sort_by: "who,id"}}
"""
BAD = """
on_error: continue
dead_letter: OUT/dead.ndjson
nodes:
  app: {source: {path: "IN/app-*.ndjson"}}
  ratio: {transform: {input: app, columns: {id: id, n: "1000 / (id - 250)"}}}
  out: {output: {input: ratio, path: OUT/out.ndjson}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        rows = [
            {
                "id": number * 100 + n,
                "who": f"u{n * 7 % 40}",
                "level": ("info", "warn", "error")[n % 3],
            }
            for n in range(100)
        ]
        (tmp_path / f"app-{number}.ndjson").write_text(
            "".join(f"{json.dumps(row)}\n" for row in rows)
        )
    users = [f"u{n},team-{n % 3}\n" for n in range(0, 40, 2)]
    (tmp_path / "users.csv").write_text("who,team\n" + "".join(users))
    return tmp_path


def run_yaml(
    text: str,
    folder: Path,
    name: str,
    capsys: pytest.CaptureFixture[str],
    *arguments: str,
    table: str = "",
) -> tuple[int, Any, str]:
    """Exit code, the report, and what was said on stderr once Spark starts. Outputs are in that folder."""
    (folder / name).mkdir()
    text = (
        text.replace("IN/", f"{folder}/")
        .replace("OUT/", f"{folder / name}/")
        .replace("TABLE", table)
    )
    path = folder / f"{name}.yaml"
    path.write_text(text)
    code = run(["run", str(path), "--json", *arguments])
    said = capsys.readouterr()
    error = said.err
    if arguments:
        assert error.startswith(_STARTING)
        error = error.removeprefix(_STARTING)
    return code, json.loads(said.out) if said.out else None, error


def test_a_pipeline_gives_the_same_files_tables_and_counters_as_in_one_process(
    folder: Path, s3_bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = []
    for name, arguments in (
        ("one", []),
        ("many", [*MASTER, "--staging", f"s3://{s3_bucket}/staging"]),
    ):
        table = f"s3://{s3_bucket}/{name}"
        code, report, error = run_yaml(NODES, folder, name, capsys, *arguments, table=table)
        assert (code, error) == (0, "")
        reports.append({key: report[key] for key in ("outputs", "records_read", "dlq_count")})
    assert reports[0] == reports[1]
    assert reports[0]["outputs"]["o4"]["records_written"] == 198
    assert reports[0]["records_read"] == {"app": 300, "users": 20}
    for name in ("sorted.parquet", "groups.csv", "teams.ndjson"):
        assert (folder / "many" / name).read_bytes() == (folder / "one" / name).read_bytes()
    tables = [Table.open(f"s3://{s3_bucket}/{name}") for name in ("one", "many")]
    assert pa.table(tables[0].scan()).equals(pa.table(tables[1].scan()))
    assert tables[1].version == 1


def test_bad_records_are_put_aside_and_the_exit_code_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report, error = run_yaml(BAD, folder, "many", capsys, *MASTER)
    assert (code, error, report["dlq_count"]) == (2, "", 1)
    assert lines_of(folder / "many/dead.ndjson") == [
        {"source": "app", "row": 251, "node": "ratio", "reason": "column 'n': divide by zero"}
    ]
    assert len(lines_of(folder / "many/out.ndjson")) == 299


def test_what_ends_a_run_is_one_line_and_leaves_no_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = BAD.replace("on_error: continue\n", "").replace("dead_letter: OUT/dead.ndjson\n", "")
    code, _, error = run_yaml(text, folder, "many", capsys, *MASTER)
    assert code == 3
    assert error == (
        f"compactor: error: {folder}/many.yaml, line 4: node 'ratio': row 251 of 'app': "
        "column 'n': divide by zero; no file was written (`on_error: continue` puts such rows aside)\n"
    )
    assert list((folder / "many").iterdir()) == []


def test_what_a_task_does_not_survive_is_one_line_too(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something that is no mistake of the user's: Spark tries again, and gives up."""
    monkeypatch.setattr("compactor.pipelines.on_spark.run_piece", _Broken())
    code, _, error = run_yaml(BAD, folder, "many", capsys, *MASTER)
    assert code == 1
    assert error == "compactor: error: Spark gave up on the task: OSError: the disk is gone\n"
    assert list((folder / "many").iterdir()) == []


class _Broken:
    """Pickled by value, as it is in no module that workers know."""

    __module__ = "__main__"

    def __call__(self, *_arguments: Any) -> Any:
        raise OSError("the disk is gone")
