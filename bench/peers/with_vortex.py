"""Vortex: scans one sorted file, in its default and its compact layout."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import vortex

from bench.peers.contract import Task
from bench.peers.parquet import sorted_rows

_BATCH_ROWS = 65_536


class VortexScan:
    settings = "VortexWriteOptions.default; to_arrow of one sorted file"
    options = staticmethod(vortex.io.VortexWriteOptions.default)

    def version(self) -> str:
        return importlib.metadata.version("vortex-data")

    def prepare(self, task: Task) -> None:
        rows = sorted_rows(task).to_reader(_BATCH_ROWS)
        self.options().write(rows, str(_file(task)))

    def start(self, task: Task) -> None:
        vortex.set_worker_threads(task.cores)
        self._file = vortex.open(str(_file(task)))

    def scan(self, task: Task) -> int:
        return sum(batch.num_rows for batch in self._file.to_arrow(list(task.columns)))

    def output_bytes(self, task: Task) -> int:
        return _file(task).stat().st_size


class VortexCompactScan(VortexScan):
    settings = "VortexWriteOptions.compact; to_arrow of one sorted file"
    options = staticmethod(vortex.io.VortexWriteOptions.compact)


def _file(task: Task) -> Path:
    return task.prepared / "sorted.vortex"
