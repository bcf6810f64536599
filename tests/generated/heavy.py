"""Random tables of heavy texts, merged within little memory: a merge is refused before it begins, or done.

`python -m tests.generated.heavy --count 300 --processes 2`; `--seed 47` tries one again.
"""

from __future__ import annotations

import gc
import hashlib
import random
import sys
from collections import Counter
from typing import Any, Final

import pyarrow as pa

from compactor.compaction.attempt import run_compaction
from compactor.compaction.driver import Driver, DriverSettings
from compactor.compaction.engine import InProcessEngine
from compactor.compaction.worker import compact
from compactor.files.stream import StreamBatches
from compactor.read.scan import scan
from compactor.settings.compaction import CompactionSettings, Policy, Strategy
from compactor.table.commit_log import CommitLog
from compactor.write.ingest import IngestOptions, ingest_batches
from lsm_fragment.keys.sort_schema import SortColumn
from tests.generated.pool import main
from tests.support.memory_store import MemoryStore

TIMEOUT_S: Final = 120.0
_MIB: Final = 1 << 20
_MAX_BYTES: Final = 60 * _MIB
"""Of distinct texts in a case: more only take longer."""
_MAX_DECODED_BYTES: Final = 400 * _MIB


def check(seed: int) -> str | None:
    """Returns what is wrong with the case of a seed."""
    rng = random.Random(f"heavy {seed}")
    inputs, size = rng.choice((2, 4, 16)), rng.choice((50_000, 200_000, 800_000, 2_000_000))
    # Row groups that are divided have a copy each of the texts that they share.
    rows = min(rng.choice((3, 20, 100, 200)), max(3, _MAX_DECODED_BYTES // size // inputs))
    are_shared = rng.random() < 0.4
    pools = 1 if are_shared else inputs
    distinct = max(1, min(rng.choice((1, 2, 4, 8, rows)), rows, _MAX_BYTES // size // pools))
    dtype = rng.choice((pa.string(), pa.string(), pa.large_string(), pa.binary()))
    store, expected = MemoryStore(), Counter[tuple[int, str]]()
    for number in range(inputs):
        texts = [_text(0 if are_shared else number, n, size) for n in range(distinct)]
        few = rng.random() < 0.1
        table = _rows(rng, number, 1 if few else rows, texts, dtype)
        expected.update(_seen(table))
        log = CommitLog(store, readers=1)
        with StreamBatches(table, _MIB) as batches:
            sort = (SortColumn("k"),)
            ingest_batches(store, log, log.refresh(), batches, sort, IngestOptions())
    try:
        return _merged(store, rng.choice((64, 96)), expected)
    finally:
        gc.collect()  # tables in memory are large, and the collector counts objects


def _text(pool: int, number: int, size: int) -> str:
    """Returns a text that no other is like."""
    return random.Random(f"text {pool} {number}").randbytes(size // 2).hex()


def _rows(
    rng: random.Random, number: int, rows: int, texts: list[str], dtype: pa.DataType
) -> pa.Table:
    null_share = rng.choice((0.0, 0.0, 0.2))
    in_runs = rng.random() < 0.3
    chosen = [n * len(texts) // rows if in_runs else n % len(texts) for n in range(rows)]
    codes = pa.array([None if rng.random() < null_share else n for n in chosen], pa.int32())
    values = pa.DictionaryArray.from_arrays(codes, pa.array(texts, dtype)).cast(dtype)
    return pa.table({"k": [16 * n + number for n in range(rows)], "v": values})


def _seen(table: pa.Table) -> Counter[tuple[int, str]]:
    def short(text: Any) -> str:
        data = text.encode() if isinstance(text, str) else text or b"null"
        return hashlib.sha1(data, usedforsecurity=False).hexdigest()

    keys = table["k"].to_pylist()
    values = [short(value.as_py()) for chunk in table["v"].chunks for value in chunk]
    return Counter(zip(keys, values, strict=True))


def _merged(store: MemoryStore, limit_mib: int, expected: Counter[tuple[int, str]]) -> str | None:
    settings = CompactionSettings(memory_limit_bytes=limit_mib * _MIB)
    driver = Driver(
        CommitLog(store, readers=1),
        DriverSettings(policy=Policy(strategy=Strategy.FULL), compaction=settings, gives_up=True),
    )
    before = driver.log.current().version
    if driver.plan(driver.log.current()).refused:
        return None
    report = compact(driver, InProcessEngine(lambda c: run_compaction(c, store)))
    if report.failed:
        attempts = len(report.failed)
        return f"{limit_mib} MiB, {attempts} attempts: {report.failed[0].outcome.failure}"
    if driver.log.current().version == before:
        return "nothing was done, and nothing refused"
    found: Counter[tuple[int, str]] = Counter()
    for batch in scan(store, driver.log.current()):
        found.update(_seen(pa.Table.from_batches([batch])))
    return None if found == expected else "the merge gives other rows"


if __name__ == "__main__":
    sys.exit(main(check, __doc__, "tests.generated.heavy", TIMEOUT_S))
