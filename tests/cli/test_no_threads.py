"""Commands where the machine starts only some threads, or gives only some memory."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from compactor import Table
from tests.support.thread_limit import COMPILER, build_thread_limit, thread_limit

_ROWS = 3_000
_DONE, _REFUSED, _NO_MEANS = 0, 1, 6
_PIPELINE = {
    "on_error": "continue",
    "dead_letter": "bad.ndjson",
    "nodes": {
        "a": {"source": {"path": "a.ndjson", "fields": {"id": "BIGINT", "t": "TEXT"}}},
        "b": {"source": {"path": "a.csv", "fields": {"id": "BIGINT", "t": "TEXT"}}},
        "m": {"merge": {"inputs": ["a", "b"]}},
        "o": {"output": {"input": "m", "path": "c.parquet"}},
    },
}
_COMMANDS = (
    "ingest t a.ndjson",
    "ingest t a.csv",
    "ingest t a.parquet",
    "compact t --strategy full --master in-process",
    "delete t --where id=3",
    "export t x.arrow",
    "query t --where id<3",
    "vacuum t",
    "run p.json",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table, files of each kind and a pipeline."""
    folder = tmp_path_factory.mktemp("machine")
    rows = [{"id": n * 7919 % _ROWS, "t": f"text {n % 97}"} for n in range(_ROWS)]
    (folder / "a.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "a.csv").write_text("id,t\n" + "".join(f"{r['id']},{r['t']}\n" for r in rows))
    (folder / "p.json").write_text(json.dumps(_PIPELINE))
    for _ in range(3):
        _run(folder, "ingest base a.ndjson --sort-by id")
    _run(folder, "export base a.parquet")
    return folder


@pytest.fixture(scope="module")
def library(place: Path) -> Path:
    return build_thread_limit(place)


def _run(
    folder: Path, line: str, prepare: Callable[[], None] | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "compactor", *line.split()],
        cwd=folder,
        env=os.environ | environment,
        preexec_fn=prepare,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _checked(place: Path, line: str, **limits: object) -> int:
    """Runs a command on a copy of the table under limits. Returns its exit code once all else is checked."""
    shutil.rmtree(place / "t", ignore_errors=True)
    shutil.copytree(place / "base", place / "t")
    (place / "bad.ndjson").unlink(missing_ok=True)
    ended = _run(place, line, **limits)  # type: ignore[arg-type]
    said = [text for text in ended.stderr.splitlines() if text.startswith("compactor: error")]
    assert ended.returncode in (_DONE, _REFUSED, _NO_MEANS), (line, limits, ended)
    assert len(said) == (ended.returncode != _DONE), ended.stderr
    assert "internal error" not in ended.stderr
    if (letters := place / "bad.ndjson").exists():
        assert letters.read_text() == ""
    table = Table.open(place / "t")
    assert not table.verify().faults
    assert table.rows in (3 * _ROWS, 3 * _ROWS - 3, 4 * _ROWS, 6 * _ROWS)
    return ended.returncode


@pytest.mark.long
@pytest.mark.skipif(shutil.which(COMPILER) is None, reason="needs a C compiler")
@pytest.mark.parametrize("threads", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("line", _COMMANDS)
def test_a_command_works_in_the_threads_that_start_or_says_that_none_does(
    place: Path, library: Path, threads: int, line: str
) -> None:
    code = _checked(place, line, **thread_limit(library, threads))
    needs_arrows = any(name in line for name in ("ndjson", "csv", "run"))
    assert code == _DONE or (needs_arrows and code == _NO_MEANS)


@pytest.mark.skipif(
    os.environ.get("HYPOTHESIS_PROFILE") != "search",
    reason="where memory ends differs from machine to machine: `make test-long` looks for new places",
)
@pytest.mark.long
@pytest.mark.parametrize("mebibytes", [360, 400, 440, 520])
@pytest.mark.parametrize("line", _COMMANDS)
def test_a_command_without_memory_says_so_and_leaves_nothing_half(
    place: Path, mebibytes: int, line: str
) -> None:
    size = mebibytes << 20
    limit = partial(resource.setrlimit, resource.RLIMIT_AS, (size, size))
    _checked(place, line, prepare=limit)
