"""Clusters of so many members that their ids are longer than a sort key may be."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa

from compactor.entities.spec import DEFAULT_MAX_MERGED
from compactor.read.scan import scan
from compactor.rows.bounded_keys import keys_of
from compactor.table.commit_log import CommitLog
from tests.entities.support import by_id, rows, run, spec, write
from tests.support.memory_store import MemoryStore
from tests.support.tables import compact_table

ON_K = [["eq", "a.k", "b.k"]]


def uuids(count: int) -> list[str]:
    return [
        str(uuid.UUID(int=(n * 0x9E3779B97F4A7C15F39CC0605CEDC835) % 2**128)) for n in range(count)
    ]


def test_as_many_as_may_be_merged_have_one_composite_id(tmp_path: Path) -> None:
    names = sorted(uuids(DEFAULT_MAX_MERGED - 1))
    write(tmp_path, {"A": [{"_id": "a", "k": 1}], "B": [{"_id": n, "k": 1} for n in names]})
    chosen, store = spec("A a", "B b", equality=ON_K), MemoryStore()
    run(chosen, store, tmp_path)
    whole = "|".join(["0|a", *(f"1|{n}" for n in names)])
    assert [e["_id"] for e in rows(store)] == [whole]
    assert run(chosen, store, tmp_path).unchanged == 1
    write(tmp_path, {"B": [{"_id": n, "k": 1} for n in names[:-1]]})
    run(chosen, store, tmp_path)
    compact_table(store)
    fewer = "|".join(["0|a", *(f"1|{n}" for n in names[:-1])])
    found = by_id(rows(store))
    assert set(found) == {whole, fewer}
    assert found[whole] == {"_id": whole, "_deleted": True, "$replaced": True}


def test_keys_are_distinct_and_bounded_and_short_ids_are_their_own() -> None:
    long = ["x" * n for n in range(150, 300)]
    ids = ["", "a", "é" * 159, "é" * 160, "é" * 500, *long, *(f"{'x' * 500}{n}" for n in range(99))]
    keys = keys_of(pa.array(ids)).to_pylist()
    assert len(set(keys)) == len(ids)
    assert max(map(len, keys)) == 160
    assert [k for k, i in zip(keys, ids, strict=True) if k == i] == [i for i in ids if len(i) < 160]
    assert keys_of(pa.array(keys)).to_pylist()[1] == "a"


def test_a_table_is_sorted_by_its_keys_which_no_reader_of_lines_sees(tmp_path: Path) -> None:
    write(tmp_path, {"A": [{"_id": "b"}, {"_id": "a"}, {"_id": "y" * 200}]})
    store = MemoryStore()
    run(spec("A a"), store, tmp_path)
    snapshot = CommitLog(store).refresh()
    assert snapshot.table.sort[0].column == "$key"
    keys = pa.Table.from_batches(scan(store, snapshot))["$key"].to_pylist()
    assert keys == sorted(keys)
    assert keys[:2] == ["0|a", "0|b"]
    assert all("$key" not in e for e in rows(store))
