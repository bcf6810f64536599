"""What one task may merge, beside what the merge itself says that it needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from compactor.planner.limits import Limits
from compactor.planner.shape import key_widths, memory_plan
from compactor.planner.tree import Item, sorted_runs
from compactor.settings.compaction import CompactionSettings, Strategy
from compactor.table.commit_log import CommitLog
from tests.support.fragments import sort_schema
from tests.support.memory_store import MemoryStore
from tests.support.tables import compact_table, ingest_tables

MIB = 1 << 20


def need_of(store: MemoryStore, limit_bytes: int) -> int:
    """Returns the need of a merge of all fragments of a table."""
    snapshot = CommitLog(store).refresh()
    settings = CompactionSettings(memory_limit_bytes=limit_bytes)
    entries = list(snapshot.fragments.values())
    return memory_plan(entries, snapshot.table, settings).stages.need_bytes


@pytest.mark.parametrize(
    ("inputs", "columns", "width", "payload", "rows", "max_rows"),
    [
        (3, 16, 0, 0, 40_000, 65_536),
        (3, 8, 20, 0, 30_000, 65_536),
        (4, 8, 20, 0, 30_000, 65_536),
        (12, 8, 20, 0, 10_000, 65_536),
        (3, 3, 0, 0, 40_000, 65_536),
        (3, 1, 3, 0, 60_000, 65_536),
        (3, 2, 10, 200, 10_000, 1_000),
        (3, 3, 60, 2_000, 4_000, 200),
        (3, 4, 500, 0, 4_000, 65_536),
    ],
)
def test_a_merge_needs_no_more_than_the_planner_says_and_not_much_less(
    inputs: int,
    columns: int,
    width: int,
    payload: int,
    rows: int,
    max_rows: int,
    tmp_path: Path,
) -> None:
    """width: letters of a sort column; integers with 0. payload: letters of another column."""
    store, rng = MemoryStore(), np.random.default_rng(1)
    names = [f"k{number}" for number in range(columns)]
    tables = []
    for _ in range(inputs):
        numbers = [rng.integers(0, 1 << 40, rows) for _ in names]
        keys = [[f"{n:0{width}d}" for n in each] if width else each for each in numbers]
        data = dict(zip(names, keys, strict=True))
        if payload:
            data["payload"] = [rng.bytes(payload // 2).hex() for _ in range(rows)]
        tables.append(pa.table(data))
    sort = sort_schema(",".join(names))
    ingest_tables(store, tables, tmp_path, sort=sort, max_rows=max_rows)
    limits = range(16 * MIB, 256 * MIB, MIB)
    limit = next(limit for limit in limits if need_of(store, limit) <= limit)
    compact_table(
        store, CompactionSettings(memory_limit_bytes=limit, threads=1), strategy=Strategy.FULL
    )
    snapshot = CommitLog(store).refresh()
    assert len(snapshot.fragments) == 1
    (record,) = snapshot.measured
    assert limit == 16 * MIB or record.peak_charged_bytes > limit // 2


@pytest.mark.parametrize("sort_by", ["a", "a,b,c", "n,b,c", "n"])
@pytest.mark.parametrize("max_rows", [64, 1_000])
def test_the_planner_refuses_what_a_merge_would(
    sort_by: str, max_rows: int, tmp_path: Path
) -> None:
    store = MemoryStore()
    strings = {name: [f"{name}{row:04d}" + name * 10_000 for row in range(256)] for name in "abc"}
    tables = [pa.table({"n": range(256), **strings}) for _ in range(3)]
    log = ingest_tables(store, tables, tmp_path, sort=sort_schema(sort_by), max_rows=max_rows)
    snapshot = log.refresh()
    entries = list(snapshot.fragments.values())
    runs = sorted_runs([Item(entry, b"", b"") for entry in entries])
    widths = key_widths(snapshot.table)

    def settings(limit_bytes: int) -> CompactionSettings:
        return CompactionSettings(memory_limit_bytes=limit_bytes, target_row_group_bytes=MIB)

    need = memory_plan(entries, snapshot.table, settings(16 * MIB)).stages.need_bytes
    for limit_bytes in (16 * MIB, need - 1):
        limits = Limits.of(settings(limit_bytes), widths)
        assert limits.need_bytes(runs) == need
        assert limits.refusal(runs) is not None
        assert not limits.fits(runs)
    assert Limits.of(settings(need), widths).refusal(runs) is None
