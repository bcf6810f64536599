"""Rows that only one fragment has leave as they are stored; the others are merged."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from compactor.read.fragment_columns import read_columns
from compactor.read.read_reports import ScanReport
from compactor.read.scan import scan
from compactor.read.stretches import Part, stretches_of
from lsm_fragment.container.footer import RowGroupStats
from lsm_fragment.keys.comparator import KeyComparator
from tests.support.fragments import sort_schema
from tests.support.memory_store import MemoryStore
from tests.support.tables import ingest_tables

COMPARE = KeyComparator(pa.schema([("k", pa.int64())]), sort_schema("k"))


def group(first: int, last: int) -> RowGroupStats:
    return RowGroupStats(1, 0, (first,), (last,))


@st.composite
def fragments(draw: st.DrawFn) -> list[list[RowGroupStats]]:
    """Draws fragments whose row groups are in order; neighbours may share a key."""
    found = []
    for _ in range(draw(st.integers(1, 5))):
        keys = sorted(draw(st.lists(st.integers(0, 40), min_size=0, max_size=12)))
        pairs = zip(keys[::2], keys[1::2], strict=False)
        found.append([group(low, high) for low, high in pairs])
    return found


@given(fragments())
def test_stretches_are_in_order_share_no_key_and_have_every_row_group_once(
    given_fragments: list[list[RowGroupStats]],
) -> None:
    stretches = list(stretches_of(given_fragments, COMPARE))
    seen: list[list[int]] = [[] for _ in given_fragments]
    highest = -1
    for parts in stretches:
        assert [part.fragment for part in parts] == sorted({part.fragment for part in parts})
        taken = [
            given_fragments[part.fragment][n]
            for part in parts
            for n in range(part.start, part.stop)
        ]
        assert min(g.first_key[0] for g in taken) > highest or len(given_fragments) == 1
        highest = max(g.last_key[0] for g in taken)
        for part in parts:
            seen[part.fragment] += range(part.start, part.stop)
        if len(parts) > 1:
            assert len(parts) <= len(taken)
            assert any(
                a.first_key <= b.last_key and b.first_key <= a.last_key
                for x in parts for y in parts if x.fragment < y.fragment
                for a in given_fragments[x.fragment][x.start : x.stop]
                for b in given_fragments[y.fragment][y.start : y.stop]
            )  # fmt: skip
    assert seen == [list(range(len(groups))) for groups in given_fragments]


@given(st.data())
def test_bounds_that_are_cut_lose_no_row_group_and_no_order(data: st.DataObject) -> None:
    exact = data.draw(fragments())
    slack = st.sampled_from([0, 0, 0, 1, 5, 40])
    cut = [
        [group(g.first_key[0] - data.draw(slack), g.last_key[0] + data.draw(slack)) for g in groups]
        for groups in exact
    ]
    seen: list[list[int]] = [[] for _ in exact]
    highest, last = -1, -1
    for parts in stretches_of(cut, COMPARE):
        for part in parts:
            seen[part.fragment] += range(part.start, part.stop)
        taken = [exact[p.fragment][n] for p in parts for n in range(p.start, p.stop)]
        lowest = min(g.first_key[0] for g in taken)
        is_same = len(parts) == 1 and parts[0].fragment == last
        assert lowest > highest or (is_same and lowest == highest) or highest == -1
        highest = max(g.last_key[0] for g in taken)
        last = parts[0].fragment if len(parts) == 1 else -1
    assert seen == [list(range(len(groups))) for groups in exact]


def test_rows_whose_long_keys_have_cut_bounds_are_all_read(tmp_path: Path) -> None:
    long = "\U0010ffff" * 80
    old = pa.table({"k": [0, 0, 0, 9, None], "l": [None, None, long, long, long]})
    young = pa.table({"k": [0, 7, 9], "l": [long + "x", long, None]})
    store = MemoryStore()
    order = sort_schema("k,l:desc:nulls_first")
    log = ingest_tables(store, [old, young], tmp_path, sort=order, max_rows=2)
    rows = pa.Table.from_batches(scan(store, log.latest))
    assert rows["k"].to_pylist() == [0, 0, 0, 0, 7, 9, 9, None]


def test_row_groups_that_overlap_with_none_are_parts_of_their_own() -> None:
    old = [group(0, 9), group(10, 19), group(20, 29), group(30, 39)]
    young = [group(12, 15), group(50, 59)]
    assert list(stretches_of([old, young], COMPARE)) == [
        [Part(0, 0, 1)],
        [Part(0, 1, 2), Part(1, 0, 1)],
        [Part(0, 2, 4)],
        [Part(1, 1, 2)],
    ]


def test_a_sorted_run_is_read_without_its_sort_columns_and_without_a_merge(
    tmp_path: Path, monkeypatch
) -> None:
    store = MemoryStore()
    table = pa.table(
        {"k": list(range(500)), "v": [n * 7 % 13 for n in range(500)], "w": ["x"] * 500}
    )
    log = ingest_tables(store, [table[:200], table[200:]], tmp_path, sort=sort_schema("k"))
    monkeypatch.setattr("compactor.read.merged_rows.merge_rows", None)
    asked: list[str] = []
    read = "compactor.read.row_group_reader.read_columns"

    def reading(reader, number, names, *rest, **settings):
        asked.extend(names)
        return read_columns(reader, number, names, *rest, **settings)

    monkeypatch.setattr(read, reading)
    report = ScanReport()
    rows = pa.Table.from_batches(scan(store, log.latest, ["v"], report=report))
    assert rows["v"].to_pylist() == table["v"].to_pylist()
    assert set(asked) == {"v"}
    assert (report.rows, report.rows_read, report.fragments) == (500, 500, 2)


def test_only_the_row_groups_that_overlap_are_merged(tmp_path: Path) -> None:
    store = MemoryStore()
    old = pa.table({"k": list(range(0, 1000, 2)), "v": ["old"] * 500})
    young = pa.table({"k": [301, 302, 303], "v": ["young"] * 3})
    log = ingest_tables(store, [old, young], tmp_path, sort=sort_schema("k"))
    rows = pa.Table.from_batches(scan(store, log.latest))
    expected = pa.concat_tables([old, young]).sort_by([("k", "ascending")])
    assert rows["k"].to_pylist() == expected["k"].to_pylist()
    at = rows["k"].to_pylist().index(302)
    assert rows["v"].to_pylist()[at : at + 2] == ["old", "young"]
    assert max(batch.num_rows for batch in scan(store, log.latest)) == 64 + 3
