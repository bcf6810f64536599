"""Entries of a checkpoint are made when they are asked for: one by one, or all."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.table.entry import STORED, FragmentEntry
from compactor.table.entry_table import EntryTable
from compactor.table.fragments import FragmentMap
from tests.table.test_commit_log import entry

ENTRIES = {each.key: each for each in (entry(str(n)) for n in range(200))}


def opened() -> FragmentMap:
    return FragmentMap(EntryTable.of(list(ENTRIES.values())))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The keys of the entries that are made together."""
    found: list[list[str]] = []
    make = STORED.from_columns

    def noted(_: object, table: pa.Table) -> list[FragmentEntry]:
        found.append(table["key"].to_pylist())
        return make(table)

    monkeypatch.setattr(type(STORED), "from_columns", noted)
    return found


@given(st.lists(st.sampled_from(list(ENTRIES)), max_size=40))
def test_an_entry_is_the_same_whatever_was_asked_for_before(keys: list[str]) -> None:
    fragments = opened()
    assert [fragments[key] for key in keys] == [ENTRIES[key] for key in keys]
    assert dict(fragments) == ENTRIES


def test_an_entry_that_nobody_asks_for_is_not_made(made: list[list[str]]) -> None:
    fragments, (first, second) = opened(), (entry("7").key, entry("70").key)
    for key in (first, second, first):
        assert fragments[key].key == key
    assert made == [[first], [second]]


def test_entries_that_are_asked_for_in_turn_are_made_together_and_once(
    made: list[list[str]],
) -> None:
    assert list(opened().values()) == list(ENTRIES.values())
    assert sorted(key for keys in made for key in keys) == sorted(ENTRIES)
    assert len(made) < 10
