"""A mistake gives the same exit code in every command, as docs/reference/cli.md says."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest

from compactor.cli.main import run
from tests.support.tables import log_rows

IN_PROCESS: Final = "--master in-process"
READ_ROWS: Final = (
    "head {}", "query {} --where value>=0", "export {} o.parquet", "delete {} --where value>=0 --dry-run",
)  # fmt: skip
READ_THE_LOG: Final = (
    "alter {} --rename id:number", "inspect {}", "compact {} --dry-run", "report {} --json", "vacuum {}",
)  # fmt: skip
CHECK: Final = ("verify {}", "compact {} --strategy full " + IN_PROCESS)
PIPELINE: Final = """
nodes:
  rows: {source: {SOURCE}}
  some: {transform: {input: rows, filter: "FILTER"}}
  out:  {output: {input: some, path: OUT}}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a current folder with `a.parquet`, and a table `t` of two fragments with its rows."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(log_rows(20, 0), "a.parquet")
    for _ in range(2):
        assert run(["ingest", "t", "a.parquet", "--sort-by", "service,ts"]) == 0
    return tmp_path


def codes(calls: Iterable[str], table: str = "t") -> dict[int, list[str]]:
    """Runs commands. Returns them by their exit code."""
    found: dict[int, list[str]] = {}
    for call in calls:
        found.setdefault(run(call.format(table).split()), []).append(call)
    return found


def pipeline(source: str, where: str = "value >= 0", out: str = "o.parquet") -> str:
    """Writes a pipeline. Returns the command that runs it."""
    text = PIPELINE.replace("SOURCE", source).replace("FILTER", where).replace("OUT", out)
    name = f"{len(list(Path().glob('*.yaml')))}.yaml"
    Path(name).write_text(text)
    return f"run {name}"


def test_a_missing_table() -> None:
    calls = [*READ_ROWS, *READ_THE_LOG, *CHECK, "release {} x", "repair {}", pipeline("table: no")]
    assert codes(calls, "no") == {5: calls}
    assert codes(["inspect no.frag"]) == {5: ["inspect no.frag"]}


def test_a_missing_file_of_rows() -> None:
    calls = ["ingest t no.parquet", "ingest new no.csv --sort-by id", pipeline("path: no.parquet")]
    assert codes(calls) == {3: calls}


def test_a_missing_description() -> None:
    calls = ["run no.yaml", "entity-merge no.yaml --dry-run"]
    assert codes(calls) == {2: calls}


def test_a_place_that_nothing_can_be_written_to() -> None:
    calls = [
        "export t no/o.parquet", "export t o.xyz", "report t -o no/o.html",
        pipeline("path: a.parquet", out="no/o.parquet"), "simulate --duration 1h --plot no/o.png",
        "ingest t a.parquet --metrics-textfile no/o.prom",
        f"compact t {IN_PROCESS} --spool-directory no",
    ]  # fmt: skip
    assert codes(calls) == {2: calls}


def test_a_column_that_is_not_there() -> None:
    new = "ingest new a.parquet --sort-by service"
    calls = [
        "head t --columns no", "query t --where no=1", "export t o.csv --columns no",
        "delete t --where no=1", "alter t --drop no", "alter t --rename no:yes", "alter t --order no",
        "alter t --skip-index no:bloom", "ingest new a.parquet --sort-by no", f"{new} --not-null no",
        f"{new} --skip-index no:bloom", f"{new} --ttl 1d --ttl-column no",
        f"{new} --row-policy last --sequence no", f"{new} --row-policy aggregate --aggregate no:sum",
        f"{new} --time-column no --time-window 1d", pipeline("path: a.parquet", "no = 1"),
        pipeline("path: a.parquet, columns: [no]"), pipeline("table: t, where: 'no = 1'"),
    ]  # fmt: skip
    assert codes(calls) == {2: calls}
    pq.write_table(log_rows(5, 1).drop_columns(["ts"]), "less.parquet")
    assert codes(["ingest t less.parquet"]) == {3: ["ingest t less.parquet"]}
    assert codes(["ingest t a.parquet --promote no"]) == {0: ["ingest t a.parquet --promote no"]}


def test_a_damaged_fragment(folder: Path) -> None:
    file, _ = (folder / "t/data").iterdir()
    data = file.read_bytes()
    file.write_bytes(data[:20] + bytes(byte ^ 1 for byte in data[20:]))
    calls = [
        *READ_ROWS, pipeline("table: t"), f"inspect {file}", f"ingest new {file} --sort-by service",
    ]  # fmt: skip
    assert codes(calls) == {3: calls}
    assert codes(READ_THE_LOG) == {0: list(READ_THE_LOG)}
    assert codes(CHECK) == {1: list(CHECK)}


def test_a_missing_fragment(folder: Path) -> None:
    file, _ = (folder / "t/data").iterdir()
    file.unlink()
    calls = [*READ_ROWS, pipeline("table: t")]
    assert codes(calls) == {4: calls}
    assert codes(CHECK) == {1: list(CHECK)}


def test_a_damaged_log(folder: Path) -> None:
    file = folder / "t/_log/00000000000000000001.json"
    file.write_bytes(file.read_bytes().replace(b"ingest", b"ingesT"))
    calls = [*READ_ROWS, *READ_THE_LOG, *CHECK, "ingest t a.parquet", "release t x"]
    assert codes(calls) == {3: calls}
    assert codes(["repair t"]) == {1: ["repair t"]}
