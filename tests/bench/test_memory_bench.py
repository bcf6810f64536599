"""The memory bench measures what it says, on inputs small enough for a test."""

from __future__ import annotations

from pathlib import Path

from bench.bench_memory import MIB, Case, build, compact_all, heavy, wide
from bench.slow_store import SlowStore
from compactor.settings.compaction import CompactionSettings
from compactor.stores.local import LocalStore


def test_a_case_is_merged_and_nothing_of_it_stays(tmp_path: Path) -> None:
    build(
        Case(group="", name="", build=lambda: wide(300, inputs=4, present=10, rows=200), sort="k"),
        tmp_path / "t",
    )
    store = LocalStore(tmp_path / "t")
    before = {info.key for info in store.list("")}
    figures = compact_all(SlowStore(store), CompactionSettings())
    assert figures["rows_out"] == 800
    assert figures["gets"] == figures["inputs"] == 4
    assert {info.key for info in store.list("")} == before


def test_heavy_rows_are_such_that_a_second_pass_is_needed(tmp_path: Path) -> None:
    case = Case(
        group="",
        name="",
        build=lambda: heavy(30, inputs=16, rows=500),
        sort="k",
        row_group_bytes=256 << 20,
    )
    build(case, tmp_path / "t")
    settings = CompactionSettings(target_row_group_bytes=8 * MIB)
    figures = compact_all(LocalStore(tmp_path / "t"), settings)
    assert figures["restarts"] == 1
    assert figures["replayed_inputs"] == figures["gets"] == 16
