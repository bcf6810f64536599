"""The process of `compactor run` ends by itself however it fails: no thread of Arrow needs Python then."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from compactor.files.write import open_table_sink

_KINDS: Final = ("csv", "ndjson.gz", "ndjson.zst", "parquet", "arrow")
_ENDS: Final = {"q": "nonsense(n)", "r": "1 / (n - 9999)"}
"""Expressions: one that is refused once sources are open, one that fails in the middle of the run."""
_EXIT_CODES: Final = {"q": 2, "r": 3}


def _ends(folder: Path, kind: str, column: str, times: int) -> None:
    rows = pa.table({"n": range(20_000), "s": [f"text {n}" for n in range(20_000)]})
    with open_table_sink(str(folder / f"in.{kind}"), rows.schema) as sink:
        for batch in rows.to_batches(1000):
            sink.write(batch)
    nodes = {
        "a": {"source": {"path": str(folder / f"in.{kind}")}},
        "b": {"source": {"path": str(folder / f"in.{kind}")}},
        "m": {"merge": {"inputs": ["a", "b"], "mode": "interleave"}},
        "t": {"transform": {"input": "m", "columns": {column: _ENDS[column]}}},
        "o": {"output": {"input": "t", "path": str(folder / "o.csv")}},
    }
    (folder / "p.json").write_text(json.dumps({"nodes": nodes}))
    command = [sys.executable, "-m", "compactor.cli.main", "run", str(folder / "p.json")]
    for _ in range(times):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == _EXIT_CODES[column], done.stderr
        assert done.stderr.startswith("compactor: error: ")
        assert done.stderr.count("\n") == 1
    assert {path.name for path in folder.iterdir()} == {f"in.{kind}", "p.json"}


@pytest.mark.parametrize("column", _ENDS)
@pytest.mark.parametrize("kind", _KINDS)
def test_a_run_that_fails_ends_by_itself(kind: str, column: str, tmp_path: Path) -> None:
    _ends(tmp_path, kind, column, times=1)


@pytest.mark.long
@pytest.mark.parametrize("column", _ENDS)
@pytest.mark.parametrize("kind", _KINDS)
def test_a_run_that_fails_ends_by_itself_many_times(kind: str, column: str, tmp_path: Path) -> None:
    _ends(tmp_path, kind, column, times=20)
