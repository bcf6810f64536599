"""Measures what a delete during a compaction costs at its commit: CPU seconds, and bytes of the row order.

python -m bench.bench_carrying --rows 500000
"""

from __future__ import annotations

import argparse
import tempfile
import time

import numpy as np
import pyarrow as pa

from compactor.compaction.attempt import run_compaction
from compactor.compaction.carrying import order_of_keys
from compactor.compaction.driver import Driver, DriverSettings
from compactor.files.stream import StreamBatches
from compactor.merge.key_order import KeyOrder
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from compactor.write.delete import delete_rows
from compactor.write.ingest import IngestOptions, ingest_batches
from lsm_fragment.keys.sort_schema import parse_sort_schema

INPUTS = 4


def table(kind: str, number: int, rows: int) -> pa.Table:
    """Returns one input: its keys lie among those of all others, or overlap neighbours' by a hundredth."""
    rng = np.random.default_rng(number)
    span = rows * INPUTS
    if kind == "interleaved":
        keys = np.sort(rng.integers(0, span, rows))
    else:
        keys = number * rows * 99 // 100 + np.arange(rows)
    columns = {f"number{n}": rng.integers(0, 1 << 40, rows) for n in range(6)}
    texts = [f"user {n} called /api/v{n % 7}" for n in rng.integers(0, 1 << 20, rows).tolist()]
    return pa.table({"k": keys, **columns, "text": texts})


def measure(kind: str, rows: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore(folder)
        log = CommitLog(store)
        options = IngestOptions(rows_per_fragment=rows)
        for number in range(INPUTS):
            with StreamBatches(table(kind, number, rows), 1 << 20) as batches:
                sort = parse_sort_schema("k")
                ingest_batches(store, log, log.refresh(), batches, sort, options)
        policy = Policy(strategy=Strategy.OVERLAPPING)
        settings = CompactionSettings(threads=1)
        driver = Driver(CommitLog(store), DriverSettings(policy=policy, compaction=settings))
        (compaction,) = driver.decide(1)
        start = time.process_time()
        outcome = run_compaction(compaction, store)
        merge_seconds = time.process_time() - start
        order = order_of_keys(compaction, store, lambda _: None)
        assert isinstance(order, KeyOrder)
        row_bytes = order.size_bytes / compaction.spec.rows
        order.close()
        delete_rows(store, log, "number0 % 100 = 7")
        start = time.process_time()
        (finished,) = driver.commit_outcomes([outcome])
        carry_seconds = time.process_time() - start
        assert not finished.is_void
        return (
            f"{kind}: merge {merge_seconds:.2f} s, commit with carried rows {carry_seconds:.2f} s, "
            f"order {row_bytes:.4f} B a row"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000, help="rows of each input")
    rows = parser.parse_args().rows
    for _ in range(3):
        for kind in ("interleaved", "sorted"):
            print(measure(kind, rows), flush=True)


if __name__ == "__main__":
    main()
