"""What one task may merge, beside what the merge itself says that it needs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from compactor.planner.limits import Limits
from compactor.planner.shape import memory_plan
from compactor.planner.tree import Item, sorted_runs
from compactor.settings.compaction import CompactionSettings
from tests.support.fragments import sort_schema
from tests.support.memory_store import MemoryStore
from tests.support.tables import ingest_tables

MIB = 1 << 20


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
    keys = [column.column for column in snapshot.table.sort]

    def settings(limit_bytes: int) -> CompactionSettings:
        return CompactionSettings(memory_limit_bytes=limit_bytes, target_row_group_bytes=MIB)

    need = memory_plan(entries, snapshot.table, settings(16 * MIB)).stages.need_bytes
    for limit_bytes in (16 * MIB, need - 1):
        limits = Limits.of(settings(limit_bytes), keys)
        assert limits.need_bytes(runs) == need
        assert limits.refusal(runs) is not None
        assert not limits.fits(runs)
    assert Limits.of(settings(need), keys).refusal(runs) is None
