"""A reader of a command's output that leaves, as `head -1` does, changes nothing but what is printed."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor import Table
from compactor.cli.main import run
from tests.support.tables import log_rows
from tests.support.wording import says

_PRINTING: Final = (
    "--help", "--version", "head t", "query t", "query t --where value>=0 --count --json", "inspect t",
    "inspect t --json", "inspect t --column service", "templates t service", "verify t", "verify t --json",
    "simulate --duration 1h --json", "simulate --duration 1h", "report t -o -", "report t --json",
    "repair t", "compact t --dry-run", "delete t --where value=0 --dry-run", "query --help",
)  # fmt: skip
_COUNTING: Final = """
import sys
from compactor.cli import main, read
json_lines = read.json_lines
read.json_lines = lambda batch: sys.stderr.write("batch\\n") and json_lines(batch)
main.main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a folder with `a.parquet`, and a table `t` of three disjoint fragments."""
    folder = tmp_path_factory.mktemp("pipes")
    file = folder / "a.parquet"
    for number in range(3):
        rows = log_rows(200, number)
        place = rows.schema.get_field_index("service")
        names = pa.array([f"service-{number}"] * rows.num_rows, rows.schema.field(place).type)
        pq.write_table(rows.set_column(place, rows.schema.field(place), names), file)
        assert run(["ingest", str(folder / "t"), str(file), "--sort-by", "service,ts"]) == 0
    return folder


@pytest.fixture
def broken() -> Iterator[int]:
    """Makes a pipe whose reader has left."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def compactor(arguments: str, folder: Path, stdout: int, stderr: int = subprocess.PIPE):
    call = [sys.executable, "-m", "compactor", *arguments.split()]
    return subprocess.run(call, cwd=folder, stdout=stdout, stderr=stderr, text=True, check=False)


@pytest.mark.parametrize("arguments", _PRINTING)
def test_what_prints_to_nobody_ends_well_and_quietly(
    folder: Path, broken: int, arguments: str
) -> None:
    done = compactor(arguments, folder, broken)
    assert done.returncode == 0
    for word in ("Traceback", "Exception ignored", "Broken pipe", "error"):
        assert word not in done.stderr
    assert compactor(arguments, folder, broken, broken).returncode == 0


def test_a_shell_pipe_to_head_sees_the_first_line_and_success(folder: Path) -> None:
    line = f"set -o pipefail; {sys.executable} -m compactor query t | head -1"
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stdout.count("\n") == 1
    assert "Exception" not in done.stderr


@pytest.mark.parametrize("environment", [{}, {"PYTHONUNBUFFERED": "1"}])
def test_rows_are_no_longer_read_once_their_reader_has_left(
    folder: Path, broken: int, environment: dict[str, str]
) -> None:
    for arguments in (["query", "t"], ["head", "t", "-n", "9999"]):
        counts = []
        for stdout in (subprocess.DEVNULL, broken):
            done = subprocess.run(
                [sys.executable, "-c", _COUNTING, *arguments],
                cwd=folder, stdout=stdout, stderr=subprocess.PIPE, text=True, check=True,
                env={**os.environ, **environment},
            )  # fmt: skip
            counts.append(done.stderr.count("batch\n"))
        assert counts[0] > 1
        assert counts[1] == 1


def test_work_is_done_though_nobody_reads_about_it(
    tmp_path: Path, folder: Path, broken: int
) -> None:
    file = folder / "a.parquet"
    done = compactor(f"ingest new {file} --sort-by service,ts", tmp_path, broken, broken)
    assert done.returncode == 0
    assert sum(batch.num_rows for batch in Table.open(str(tmp_path / "new")).scan()) == 200


def test_exit_codes_of_failures_stay_as_they_are(tmp_path: Path, broken: int) -> None:
    codes = [
        compactor(arguments, tmp_path, broken, broken).returncode
        for arguments in ("head no", "no", "head", "ingest t no.parquet --sort-by a")
    ]
    assert codes == [5, 2, 2, 3]


def test_a_broken_pipe_of_something_else_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("compactor.cli.read.open_view", broken)
    assert run(["query", "t"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    says(line)


@pytest.mark.parametrize("arguments", [*_PRINTING, "tags t", "changes t --since 0 --summary"])
def test_what_prints_to_a_closed_output_ends_well(
    tmp_path: Path, folder: Path, arguments: str
) -> None:
    words = [sys.executable, "-m", "compactor", *arguments.split()]
    if arguments == "report t -o -":
        words[-1] = str(tmp_path / "page.html")
    done = subprocess.run(
        ["bash", "-c", f"{shlex.join(words)} <&- >&-"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&-", "2>&-", "<&- >&-"])
def test_no_file_gets_the_number_of_a_closed_stream(
    tmp_path: Path, folder: Path, closed: str
) -> None:
    """Otherwise what a library prints would go into the file."""
    script = f"""
import os
from compactor.cli import main
from compactor.files import jsontext
lines_of = jsontext.json_lines
def with_prints(*given, **options):
    for number in (1, 2):
        assert os.get_inheritable(number)
        os.write(number, b"printed by a library")
    return lines_of(*given, **options)
jsontext.json_lines = with_prints
main.main(["export", "t", {str(tmp_path / "rows.ndjson")!r}])
"""
    line = f'{sys.executable} -c "$SCRIPT" {closed}'
    environment = {**os.environ, "SCRIPT": script}
    done = subprocess.run(["bash", "-c", line], cwd=folder, env=environment, check=False)
    assert done.returncode == 0
    assert "library" not in (tmp_path / "rows.ndjson").read_text()


def test_changes_are_not_read_for_a_closed_output(folder: Path) -> None:
    """Their reader's tag would move beyond rows that nobody has."""
    line = f"{sys.executable} -m compactor changes t --since 0 --reader r >&-"
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    says(line)
    assert Table.open(str(folder / "t")).tags().num_rows == 0


def test_an_ingest_that_cannot_tell_of_its_rows_says_that_they_are_there(tmp_path: Path) -> None:
    rows = tmp_path / "rows.ndjson"
    rows.write_text('{"k": 1}\n')
    for options in ("", "--json"):
        with Path("/dev/full").open("w") as full:
            done = compactor(f"ingest t rows.ndjson --sort-by k {options}", tmp_path, full.fileno())
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        says(line)
    assert Table.open(str(tmp_path / "t")).version == 2


def test_a_full_disk_is_still_an_error(folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = compactor("head t", folder, full.fileno())
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    says(line)
