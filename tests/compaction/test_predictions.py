"""Predictions of requests and bytes come true on the second compaction of a table. No machine varies them.

Seconds and memory are measured by `bench.bench_predictions`.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from bench.prediction_tables import Case, cases
from bench.tables import write_table
from compactor.predicate.skipping.spec import SkipKind, SkipSpec
from compactor.settings.compaction import CompactionSettings
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from compactor.write.delete import delete_rows
from compactor.write.ingest import IngestOptions
from tests.support.tables import compact_table, ingest_tables, log_rows

_DIVISOR = 10
STEADY = (
    "narrow integers", "long texts", "wide", "few rows", "deleted rows", "last row of a key",
    "level 0 into 1", "requests", "consecutive",
)  # fmt: skip
"""Tables whose files are alike. Logs in small files are stored the better the more of them come together."""


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name) for c in cases(_DIVISOR) if c.name in STEADY]
)
def test_requests_and_bytes_of_the_second_compaction_are_predicted(
    case: Case, tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    parts = case.parts()
    for count in (case.first, None):
        write_table(folder, islice(parts, count), case.sort, case.options)
        store = LocalStore(folder)
        if case.delete:
            log = CommitLog(store)
            delete_rows(store, log, case.delete)
        report = compact_table(store, strategy=case.strategy)
    figures = report.to_json()
    predicted = figures["predicted"]
    assert figures["tasks"] == 1
    assert predicted["gets"] == figures["gets"]
    assert predicted["puts"] == figures["puts"]
    assert predicted["bytes_in"] == figures["bytes_in"]
    assert predicted["bytes_out"] == pytest.approx(figures["bytes_out"], rel=0.02)


def test_the_object_of_skip_indexes_is_a_put(tmp_path: Path) -> None:
    skips = SkipSpec((("id", SkipKind.BLOOM),))
    tables = [log_rows(300, seed) for seed in range(3)]
    write_table(tmp_path / "t", tables, "service,ts", IngestOptions(skips=skips))
    figures = compact_table(LocalStore(tmp_path / "t")).to_json()
    assert figures["predicted"]["puts"] == figures["puts"] == 2


def test_outputs_of_a_divided_merge_are_counted_as_they_are_cut(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    ingest_tables(store, [log_rows(2000, seed) for seed in range(3)], tmp_path)
    size = sum(e.size_bytes for e in CommitLog(store).current().fragments.all())
    settings = CompactionSettings(target_fragment_bytes=size // 5)
    figures = compact_table(store, settings).to_json()
    assert figures["predicted"]["puts"] == figures["puts"] == 5
