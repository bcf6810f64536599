"""What an interleave of heavy rows takes besides its process stays within
`memory.limit`, by the kernel's count."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

LIMIT_MIB = 64
PARQUET_MIB = 32
"""What reading and writing Parquet takes beside the pipeline, at most."""
ROWS = 3000
RUN = """
import json, sys
from compactor.pipelines.config import parse_pipeline
from compactor.pipelines.pipeline_run import PipelineRun

def run(rows, seed):
    nodes = {}
    for name in ("a", "b"):
        nodes[name] = {"source": {"path": f"{sys.argv[1]}/{name}-{rows}.parquet"}}
        nodes["of_" + name] = {"transform": {"input": name}}
    merge = {"inputs": ["of_a", "of_b"], "mode": "interleave"}
    nodes["both"] = {"merge": merge | ({} if seed is None else {"interleave_seed": seed})}
    nodes["out"] = {"output": {"input": "both", "path": f"{sys.argv[1]}/out.parquet"}}
    document = {"nodes": nodes, "memory": {"limit": sys.argv[2]}}
    return PipelineRun(parse_pipeline(json.dumps(document), "test.yaml")).run()

def status(name):
    [line] = [line for line in open("/proc/self/status") if line.startswith(name)]
    return int(line.split()[1])

seed = json.loads(sys.argv[4])
run(1, seed)
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
assert run(int(sys.argv[3]), seed).peak_bytes <= int(sys.argv[2])
print((status("VmHWM") - before) // 1024)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("seed", ["3", "null"])
def test_an_interleave_of_rows_that_weigh_more_than_its_limit_stays_within_it(
    seed: str, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        for rows in (1, ROWS):
            lines = pa.array([f"{name}{n:06}" * 6_000 for n in range(rows)])
            options = {"use_dictionary": False, "compression": "zstd", "row_group_size": 100}
            table = pa.table({"n": range(rows), "line": lines})
            pq.write_table(table, tmp_path / f"{name}-{rows}.parquet", **options)
    command = [sys.executable, "-c", RUN, str(tmp_path), str(LIMIT_MIB << 20), str(ROWS), seed]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 8 < int(done.stdout) <= LIMIT_MIB + PARQUET_MIB
    heads = pq.read_table(tmp_path / "out.parquet", columns=["n"]).column("n")
    assert len(heads) == 2 * ROWS
