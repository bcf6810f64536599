"""Keys that are equal in their first bytes, as those of URLs and paths are, keep their order."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from compactor.errors import DataError, InputError
from compactor.planner.tree import forest
from compactor.read.verify import verify
from compactor.settings.compaction import CompactionSettings, Strategy
from compactor.stores.base import Store
from compactor.table.commit_log import CommitLog
from compactor.table.entry import FragmentEntry
from compactor.table.numbers import MAX_KEY_BYTES
from compactor.table.version import Changes, Operation
from compactor.write.delete import delete_rows
from tests.support.fragments import sort_schema
from tests.support.memory_store import MemoryStore
from tests.support.oracle import stable_sorted
from tests.support.tables import append_table, compact_table, table_rows
from tests.support.wording import refuses

PREFIX = "https://www.example.org/" + "a/" * 40
SMALL = CompactionSettings(target_fragment_bytes=1, max_rows_per_row_group=4)


def delete_where(store: Store, condition: str) -> None:
    delete_rows(store, CommitLog(store), condition)


def ids(store: Store) -> list[int]:
    return [row["id"] for row in table_rows(store)]


def test_fragments_of_one_level_stay_in_order_when_one_is_rewritten() -> None:
    store = MemoryStore()
    urls = [f"{PREFIX}{n // 4}" for n in range(16)]
    table = pa.table({"url": urls, "id": range(16)})
    for part in (table[:6], table[6:]):
        append_table(store, part, "url")
    compact_table(store, SMALL, strategy=Strategy.FULL)
    assert len(CommitLog(store).current().fragments) == 4
    delete_where(store, "id IN (0, 1, 2)")
    compact_table(store, SMALL)
    assert ids(store) == list(range(3, 16))
    assert verify(store, CommitLog(store).current()).faults == []


@pytest.mark.parametrize("nulls", ["first", "last"])
@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_binary_keys_of_the_greatest_bytes_and_nulls_keep_their_order(
    direction: str, nulls: str
) -> None:
    store = MemoryStore()
    values = [b"\xff" * 70 + bytes([n]) for n in range(6)] + [None] * 3 + [b"\xff" * 70] * 2
    table = pa.table({"k": pa.array(values, pa.binary()), "id": range(len(values))})
    sort = f"k:{direction}:nulls_{nulls}"
    for part in (table[:5], table[5:]):
        append_table(store, part, sort, max_rows=2)
    compact_table(store, SMALL, strategy=Strategy.FULL)
    assert len(CommitLog(store).current().fragments) > 3
    assert ids(store) == stable_sorted(table, sort_schema(sort)).column("id").to_pylist()
    assert verify(store, CommitLog(store).current()).faults == []


KEYS = (
    st.builds(
        lambda length, ending: "k" * length + ending,
        st.sampled_from([0, 1, 62, 63, 64, 65, 200]),
        st.text("\x00a\U0010ffff", max_size=2),
    )
    | st.none()
)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(KEYS, min_size=1, max_size=12), min_size=1, max_size=4),
    st.sampled_from(["k", "k:desc", "k:nulls_first", "k:desc:nulls_first"]),
    st.sets(st.integers(0, 40), max_size=6),
    st.booleans(),
)
def test_any_keys_with_long_common_beginnings_are_read_in_order(
    parts: list[list[str | None]], sort: str, deleted: set[int], full_again: bool
) -> None:
    store = MemoryStore()
    numbers = itertools.count()
    tables = [
        pa.table({"k": pa.array(part, pa.string()), "id": [next(numbers) for _ in part]})
        for part in parts
    ]
    for table in tables:
        append_table(store, table, sort, max_rows=3)
    compact_table(store, SMALL, strategy=Strategy.FULL)
    everything = stable_sorted(pa.concat_tables(tables), sort_schema(sort))
    assert ids(store) == everything.column("id").to_pylist()
    if deleted:
        delete_where(store, f"id IN ({', '.join(map(str, deleted))})")
        compact_table(store, SMALL, strategy=Strategy.FULL if full_again else Strategy.OVERLAPPING)
        left = [n for n in everything.column("id").to_pylist() if n not in deleted]
        assert ids(store) == left
    assert verify(store, CommitLog(store).current()).faults == []


def test_the_log_holds_the_whole_keys_of_first_and_last_rows() -> None:
    store = MemoryStore()
    log = append_table(store, pa.table({"url": [PREFIX + "b", PREFIX + "a"]}), "url")
    [entry] = log.current().fragments.values()
    assert (entry.first_key, entry.last_key) == ((PREFIX + "a",), (PREFIX + "b",))


def swapped(log: CommitLog, entry: FragmentEntry, changed: FragmentEntry) -> None:
    """Puts another entry for the same fragment into the log."""
    log.commit(
        lambda _: Changes(operation=Operation.COMPACT, adds=(changed,), removes=(entry.key,))
    )


def test_verify_names_a_fragment_whose_keys_in_the_log_are_not_those_of_its_rows() -> None:
    store = MemoryStore()
    log = append_table(store, pa.table({"url": [PREFIX + "b", PREFIX + "c"]}), "url")
    [entry] = log.current().fragments.values()
    swapped(log, entry, structs.replace(entry, first_key=(PREFIX,)))
    [fault] = verify(store, CommitLog(store).current()).faults
    assert entry.key in fault
    assert "first_key" in fault


def test_a_key_of_fewer_values_than_sort_columns_is_refused_as_damage() -> None:
    store = MemoryStore()
    log = append_table(store, pa.table({"a": [1], "b": [2]}), "a,b")
    [entry] = log.current().fragments.values()
    swapped(log, entry, structs.replace(entry, first_key=(1,)))
    with refuses(DataError, entry.key):
        forest(CommitLog(store).current())


def test_a_row_whose_sort_columns_are_too_long_is_refused_by_its_number() -> None:
    store = MemoryStore()
    table = pa.table({"k": ["a", "b" * (MAX_KEY_BYTES + 1), "c"]})
    with refuses(InputError, "row 2"):
        append_table(store, table, "k")
    assert store.objects == {}
    fits = "b" * (MAX_KEY_BYTES - 100)
    append_table(store, pa.table({"k": ["a", fits]}), "k")
    assert [row["k"] for row in table_rows(store)] == ["a", fits]
