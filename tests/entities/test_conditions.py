"""Conditions on the table of an entity merge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compactor import Table
from compactor.entities.entities import KEY
from compactor.predicate.parse import parse_where
from compactor.read.read_reports import ScanReport
from compactor.read.scan import scan
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from tests.entities.support import run, spec, write

LONG = "x" * 500


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """With three fragments of other keys."""
    found = LocalStore(str(tmp_path / "t"))
    for names in (["a1", "a2"], ["b1", "b2"], ["c1", LONG]):
        write(tmp_path, {names[0]: [{"_id": n, "city": "Rome"} for n in names]})
    for count in (1, 2, 3):
        datasets = ("a1 a", "b1 b", "c1 c")[:count]
        run(spec(*datasets), found, tmp_path)
    return found


@pytest.mark.parametrize(
    ("where", "ids", "read"),
    [
        ("_id = '0|a2'", ["0|a2"], 1),
        ("'1|b1' = _id AND city = 'Rome'", ["1|b1"], 1),
        (f"_id = '2|{LONG}'", [f"2|{LONG}"], 1),
        (f"_id = '2|{LONG}y'", [], 0),
        ("_id IN ('0|a1', '1|b2')", ["0|a1", "1|b2"], 2),
        ("_id = '9|a'", [], 0),
        ("_id > '1'", ["1|b1", "1|b2", "2|c1", f"2|{LONG}"], 3),
    ],
)
def test_a_condition_on_ids_rules_out_fragments_by_their_keys(
    store: LocalStore, where: str, ids: list[Any], read: int
) -> None:
    snapshot, report = CommitLog(store).current(), ScanReport()
    condition = parse_where(where, snapshot.table.shown_schema)
    batches = scan(store, snapshot, ["_id"], condition, report)
    assert [name for batch in batches for name in batch.column(0).to_pylist()] == ids
    assert report.fragments - report.fragments_skipped == read


def test_it_does_so_under_another_name(store: LocalStore) -> None:
    table = Table.open(store.url)
    table.alter(renames={"_id": "id", KEY: "key"})
    assert table.scan(where="id = '0|a2'").to_table().num_rows == 1
