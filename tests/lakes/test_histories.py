"""Random histories of tables: after each publication the copy has the rows of the newest version."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.lakes.lake import LakeKind
from tests.read.test_changes import FULL, SOON, TABLES, History, created
from tests.support.lakes import KINDS, Copy, Rows, scanned

EVERY_DAY: Final = {
    ("append with a time to live", LakeKind.PARQUET),
    ("append", LakeKind.DELTA),
    ("last by sequence, with tombstones", LakeKind.DELTA),
    ("append", LakeKind.ICEBERG),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(n, k, marks=() if (n, k) in EVERY_DAY else pytest.mark.long)
        for n in TABLES
        for k in KINDS
    ],
)
def test_a_copy_has_the_rows_of_the_newest_version_whatever_was_done(
    name: str, kind: LakeKind, tmp_path: Path
) -> None:
    history = History(len(name), TABLES[name])
    copy = Copy(history.table._log, tmp_path / "copy", kind)
    published: list[Rows] = []
    for _ in range(6):
        for _ in range(history.random.randrange(1, 4)):
            history.step()
        report = copy.publish()
        store, snapshot = history.table._store, copy.log.current()
        expected = scanned(store, snapshot)
        assert copy.rows() == expected, history.done
        assert report.rows == expected.total()
        published.append(expected)
    _check_versions(copy, published, history.done)


def _check_versions(copy: Copy, published: list[Rows], done: list[str]) -> None:
    """No version has rows that no version of the table had, and commits that claim to keep rows do."""
    before: Rows = Counter()
    known = [Counter(), *published]
    place = 0
    for keeps, rows in copy.versions():
        if keeps:
            assert rows == before, done
        later = [n for n in range(place, len(known)) if known[n] == rows]
        if later:
            place = later[0]
        else:  # A new column comes in a commit of its own.
            assert _without_nulls(rows) == _without_nulls(before), done
        before = rows


def _without_nulls(rows: Rows) -> Counter[object]:
    """The rows without the columns that have no value."""
    found: Counter[object] = Counter()
    for (names, values), count in rows.items():
        found[frozenset((n, v) for n, v in zip(names, values, strict=True) if v is not None)] += (
            count
        )
    return found


def test_rows_that_waited_in_a_level_that_is_left_out_arrive_like_others(tmp_path: Path) -> None:
    table = created(pa.table({"k": list(range(10))}))
    table.compact(policy=FULL)
    copy = Copy(table._log, tmp_path / "copy", LakeKind.DELTA)
    copy.publish(min_level=1)
    table.append(pa.table({"k": [5, 50]}))
    table.delete("k = 3")
    copy.publish(min_level=1)  # commits the deletion, while the two rows wait in level 0
    before = copy.delta().version()
    table.compact(policy=FULL)
    copy.publish(min_level=1)
    arrival, merge = (copy.delta_actions(before + number) for number in (1, 2))
    [added] = [action["add"] for action in arrival if "add" in action]
    assert added["dataChange"]
    assert not any("remove" in action for action in arrival)
    assert pq.read_table(tmp_path / "copy" / added["path"])["k"].to_pylist() == [5, 50]
    moved = [action[kind] for action in merge for kind in ("add", "remove") if kind in action]
    assert len(moved) == 3
    assert not any(file["dataChange"] for file in moved)


def test_what_arrived_and_was_lost_once_it_was_compacted_comes_as_a_change(tmp_path: Path) -> None:
    table = created(pa.table({"k": [1]}))
    copy = Copy(table._log, tmp_path / "copy", LakeKind.DELTA)
    copy.publish()
    table.append(pa.table({"k": [2]}))
    [waiting] = [e.key for e in table._log.current().fragments.all() if e.sequence[0] > 1]
    table.compact(policy=FULL)
    table._store.delete(waiting)
    copy.publish()
    assert copy.rows() == scanned(table._store, table._log.current())


def test_followers_that_skip_commits_that_keep_rows_have_seen_each_row_once(
    tmp_path: Path,
) -> None:
    """The rows that a stream of a Delta table reads are those that were appended, though compactions came
    between, some of rows that had not been published yet."""
    table = created(pa.table({"k": [0, 1]}))
    copy = Copy(table._log, tmp_path / "copy", LakeKind.DELTA)
    for number in range(1, 9):
        table.append(pa.table({"k": [number * 10, number]}))
        if number % 3:
            table.compact(policy=FULL if number % 2 else SOON)
        if number % 2:
            copy.publish()
    seen: list[int] = []
    kept = 0
    for version in range(copy.delta().version() + 1):
        actions = copy.delta_actions(version)
        kept += any("remove" in action for action in actions)
        for action in actions:
            if "remove" in action:
                assert not action["remove"]["dataChange"]
            if "add" in action and action["add"]["dataChange"]:
                seen += pq.read_table(tmp_path / "copy" / action["add"]["path"])["k"].to_pylist()
    assert kept
    assert copy.rows().total() == len(seen)
    assert sorted(seen) == sorted([0, 1, *(n for k in range(1, 8) for n in (k, k * 10))])
