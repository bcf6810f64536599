"""What a task of a write takes besides its process stays within `memory_limit`, by the kernel's count."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from compactor import Table

LIMIT_MIB = 64
WRITE = """
import sys
import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from compactor.spark.source.source import FragmentsDataSource

def batches(count):
    random = np.random.default_rng(1)
    for _ in range(count):
        texts = pa.array(random.integers(0, 1 << 62, 10_000)).cast(pa.string())
        yield pa.record_batch({
            "service": pa.array(random.integers(0, 50, 10_000)).cast(pa.string()),
            "ts": random.integers(0, 1 << 60, 10_000),
            "load": random.random(10_000),
            "message": pa.compute.binary_join_element_wise(texts, texts, texts, " "),
        })

def write(url, count):
    options = {"path": url, "sort_by": "service,ts", "memory_limit": sys.argv[2]}
    schema = from_arrow_schema(next(batches(1)).schema)
    writer = FragmentsDataSource(options).writer(schema, False)
    writer.commit([writer.write(batches(count))])

def status(name):
    [line] = [line for line in open("/proc/self/status") if line.startswith(name)]
    return int(line.split()[1])

write(sys.argv[1] + "/small", 1)
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
write(sys.argv[1] + "/large", 90)
print((status("VmHWM") - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_task_that_writes_more_than_its_limit_stays_within_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITE, str(tmp_path), f"{LIMIT_MIB}MiB"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 8 < int(done.stdout) <= LIMIT_MIB
    table = Table.open(str(tmp_path / "large"))
    assert table.rows == 900_000
    assert len(list(table.fragments())) > 8
