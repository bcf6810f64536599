"""Queries of ids that are stored as letters, against the rows that Python picks."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from compactor.predicate.skipping.spec import SkipKind, SkipSpec
from compactor.read.fragment_columns import open_fragment
from compactor.read.scan import scan
from compactor.read.verify import verify
from compactor.settings.compaction import Strategy
from compactor.table.commit_log import CommitLog
from compactor.table.conditions import condition_on
from compactor.write.delete import delete_rows
from compactor.write.ingest import IngestOptions
from lsm_fragment.encodings import choice
from tests.format.test_letters import ids
from tests.support.memory_store import MemoryStore
from tests.support.tables import append_table, compact_table

ROWS = 1500
TRACES = ids(ROWS)
SKIPS = SkipSpec((("span", SkipKind.BLOOM), ("session", SkipKind.VALUES)))


def span_of(trace: str) -> str:
    return f"{trace[:8]}-{trace[8:15]}"


def some_rows() -> list[pa.Table]:
    """Rows of two fragments with a key, ids that differ, ids with a frame and nulls, and ids that recur."""
    order = sorted(range(ROWS), key=lambda n: TRACES[n])
    spans = [None if n % 11 == 0 else span_of(TRACES[n]) for n in range(ROWS)]
    rows = pa.table(
        {"trace": TRACES, "span": spans, "session": [TRACES[n % 200][::-1] for n in range(ROWS)]}
    )
    return [rows.take([n for n in order if n % 2 == half]) for half in (0, 1)]


@pytest.fixture(params=[False, True], ids=["as ingested", "compacted"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    monkeypatch.setattr(choice, "encode_by_templates", lambda *_: None)
    store = MemoryStore()
    for table in some_rows():
        append_table(store, table, "trace", IngestOptions(skips=SKIPS), max_rows=400)
    if request.param:
        assert not compact_table(store, strategy=Strategy.FULL).failed
    return store


def encodings(store: MemoryStore, name: str) -> set[str]:
    readers = [
        open_fragment(store, entry.key, entry.size_bytes)
        for entry in CommitLog(store).current().by_age()
    ]
    return {c.encoding for reader in readers for c in reader.footer.chunks(name)}


SOME = TRACES[77]
CONDITIONS: dict[str, Callable[[str, str | None, str], bool]] = {
    f"trace = '{SOME}'": lambda trace, span, session: trace == SOME,
    f"trace <> '{SOME}'": lambda trace, span, session: trace != SOME,
    f"span = '{span_of(SOME)}'": lambda trace, span, session: span == span_of(SOME),
    "span LIKE '%-a%'": lambda trace, span, session: "-a" in (span or ""),
    f"trace IN ('{SOME}', '{TRACES[9]}', 'none')": lambda t, span, s: t in (SOME, TRACES[9]),
    "trace LIKE '%ab%'": lambda trace, span, session: "ab" in trace,
    "span LIKE 'f%'": lambda trace, span, session: (span or "").startswith("f"),
    "span ILIKE '%AB%C'": lambda t, span, s: (span or "").endswith("c") and "ab" in (span or "")[:-1],
    "trace >= 'c' AND trace < 'd8'": lambda trace, span, session: "c" <= trace < "d8",
    "span > '8'": lambda trace, span, session: span is not None and span > "8",
    "span IS NULL": lambda trace, span, session: span is None,
    f"session = '{TRACES[5][::-1]}'": lambda trace, span, s: s == TRACES[5][::-1],
    "session LIKE '%e' OR span IS NULL": lambda t, span, s: s.endswith("e") or span is None,
}  # fmt: skip


def found(store: MemoryStore, where: str | None) -> list[tuple[str, str | None, str]]:
    snapshot = CommitLog(store).current()
    condition = None if where is None else condition_on(snapshot.table, where)
    return [
        (row["trace"], row["span"], row["session"])
        for batch in scan(store, snapshot, None, condition)
        for row in batch.to_pylist()
    ]


def expected(picks: Callable[[str, str | None, str], bool]) -> list[tuple[str, str | None, str]]:
    rows = pa.concat_tables(some_rows()).sort_by("trace").to_pylist()
    values = [(row["trace"], row["span"], row["session"]) for row in rows]
    return [value for value in values if picks(*value)]


def test_conditions_on_ids_pick_the_rows_that_python_picks(store: MemoryStore) -> None:
    assert (encodings(store, "trace"), encodings(store, "span")) == ({"LETTERS"}, {"LETTERS"})
    for where, picks in CONDITIONS.items():
        assert found(store, where) == expected(picks), where
    assert verify(store, CommitLog(store).current()).faults == []


def test_rows_are_deleted_by_their_ids(store: MemoryStore) -> None:
    log = CommitLog(store)
    delete_rows(store, log, "span LIKE 'a%' OR trace < '2'")
    left = expected(lambda trace, span, _: not ((span or "").startswith("a") or trace < "2"))
    assert found(store, None) == left
    assert not compact_table(store, strategy=Strategy.FULL).failed
    assert found(store, None) == left
