"""Templates counted in the row groups that store them, against a count of all rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from compactor import IngestOptions, Table, WriterOptions
from compactor.read.fragment_columns import open_fragment
from compactor.read.read_reports import StoredTemplates
from compactor.read.stored_templates import stored_templates
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from tests.read.test_template_counts import counted
from tests.read.test_templates import ROWS, rows_of_logs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("t")
    options = IngestOptions(writer=WriterOptions(max_rows=500))
    Table.create(folder, rows_of_logs(), "k", options=options)
    return folder


def found_in(folder: Path, name: str, max_chunks: int, shown: int = 100) -> StoredTemplates:
    store = LocalStore(folder)
    entries = CommitLog(store).current().by_age()
    readers = [open_fragment(store, entry.key, entry.size_bytes) for entry in entries]
    return stored_templates("shown as " + name, name, readers, max_chunks=max_chunks, shown=shown)


def test_all_row_groups_have_what_all_texts_have(folder: Path) -> None:
    texts = rows_of_logs()["message"].to_pylist()
    found = found_in(folder, "message", 100)
    assert (found.column, found.chunks, found.chunks_read) == ("shown as message", 6, 6)
    assert {t.template: t.rows for t in found.templates} == counted(texts)
    assert found.rows == len(texts) - texts.count(None)
    assert found.all == len(found.templates)
    for template in found.templates:
        assert template.example in texts
        assert counted([template.example]) == {template.template: 1}


def test_few_row_groups_are_spread_over_all(folder: Path) -> None:
    texts = rows_of_logs()["message"].to_pylist()
    found = found_in(folder, "message", 2, shown=1)
    ends = [*texts[:500], *texts[ROWS - 500 :]]
    assert (found.chunks, found.chunks_read) == (6, 2)
    [most] = found.templates
    counts = counted(ends)
    assert (most.rows, found.all) == (max(counts.values()), len(counts))
    assert most.share == pytest.approx(most.rows / (len(ends) - ends.count(None)))


def test_no_more_bytes_are_read_than_allowed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compactor.read.stored_templates._MAX_STORED_BYTES", 1)
    assert found_in(folder, "message", 100).chunks_read == 1


def test_other_columns_and_missing_ones_have_none(folder: Path) -> None:
    for name in ("k", "w", "missing"):
        assert found_in(folder, name, 100).chunks == 0
