"""The whole process takes at most `memory.limit` and 200 MiB, by the kernel's count."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from compactor.files.write import open_table_sink

LIMIT_MIB = 32
BESIDE_MIB = 200
"""The constant of docs/reference/pipelines.md."""
ROWS = 2_000_000
_RUN = """
import sys
from compactor.cli.main import run
assert run(sys.argv[1:]) == 0
[line] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(line.split()[1])
"""


def written(folder: Path, kind: str) -> Path:
    """A file whose rows take several times the limit."""
    rng = np.random.default_rng(1)
    numbers = rng.integers(0, 1 << 40, ROWS)
    texts = pa.array([f"request {n} of a client" for n in numbers.tolist()])
    table = pa.table({"n": np.arange(ROWS), "ts": numbers, "x": rng.random(ROWS), "s": texts})
    path = folder / f"in.{kind}"
    if kind == "csv":
        pacsv.write_csv(table, path)
    elif kind == "parquet":
        pq.write_table(table, path)
    else:
        with open_table_sink(str(path), table.schema) as sink:
            for batch in table.to_batches():
                sink.write(batch)
    return path


def peak_mib(pipeline: Path) -> int:
    """The largest resident set of a process that runs a pipeline."""
    command = [sys.executable, "-c", _RUN, "run", str(pipeline)]
    return int(subprocess.run(command, capture_output=True, check=True).stdout.split()[-1]) >> 10


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("files", [1, 4])
@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet"])
def test_a_run_stays_within_its_limit_and_a_constant(tmp_path: Path, kind: str, files: int) -> None:
    first = written(tmp_path, kind)
    for n in range(1, files):
        (tmp_path / f"in-{n}.{kind}").symlink_to(first)
    nodes: dict[str, Any] = {
        "a": {"source": {"path": f"in*.{kind}"}},
        "t": {"transform": {"input": "a", "filter": "x > 0.2"}},
        "s": {"sort": {"input": "t", "by": "ts"}},
        "o": {"output": {"input": "s", "path": "out.csv"}},
    }
    settings = {"memory": {"limit": f"{LIMIT_MIB}MiB"}}
    (tmp_path / "p.json").write_text(json.dumps({"nodes": nodes, **settings}))
    assert peak_mib(tmp_path / "p.json") <= LIMIT_MIB + BESIDE_MIB
