"""Conditions on strings that are stored as templates, against the same rows stored as text."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from compactor.predicate.parse import parse_where
from compactor.predicate.tree import Like, matching
from compactor.read.fragment_columns import open_fragment
from compactor.read.read_reports import ScanReport
from compactor.read.scan import scan
from compactor.read.templated_column import TemplatedColumn
from compactor.read.verify import verify
from compactor.stores.base import Store
from compactor.stores.local import LocalStore
from compactor.table.conditions import condition_on
from compactor.table.snapshot import Snapshot
from compactor.table.stored_object import StoredObject
from compactor.write.delete import delete_rows
from lsm_fragment.blocks.layout import BlockKind, unpack_block_header
from lsm_fragment.container.block import Block
from lsm_fragment.container.chunk import make_chunk
from lsm_fragment.container.template_chunk import TemplateChunk
from lsm_fragment.encodings.node import NODE_BYTES
from lsm_fragment.errors import CorruptFragmentError
from lsm_fragment.keys.sort_schema import parse_sort_schema
from tests.support.memory_store import MemoryStore
from tests.support.tables import ingest_tables

ROWS = 3000
CONDITIONS = [
    "message LIKE '%ERROR%'",
    "message LIKE '%of disk%'",
    "message LIKE '%nowhere%'",
    "message LIKE '%17%'",
    "message LIKE 'user u1%'",
    "message LIKE 'user u1_ %'",
    "message ILIKE '%error%'",
    "message NOT LIKE 'user%'",
    "NOT message LIKE '%took%'",
    "message = 'user u7 took 7 ms'",
    "message <> 'ERROR of disk'",
    "message IN ('ERROR of disk', 'user u8 took 8 ms', 'x', NULL)",
    "message > 'user u5'",
    "message IS NULL",
    "message IS NOT NULL AND message LIKE '%u2%'",
    "k < 1000 AND message LIKE '%u9%'",
    "k < 100 OR message LIKE '%ERROR%'",
    "k < 100 OR message LIKE '%u9%' AND k > 2000",
    "NOT (k < 100 OR message LIKE '%u9%' OR message = 'ERROR of disk')",
    "(message LIKE '%took%' AND message LIKE '%1 ms') OR message LIKE '%disk'",
    "message LIKE '%' AND k IN (1, 2, 3)",
    "(message LIKE '%u3%') AND NULL OR k = 4",
]


def rows_of_logs() -> pa.Table:
    rng = random.Random(5)
    messages = [
        None if n % 41 == 3
        else "ERROR of disk" if n % 50 == 1
        else f"user u{n % 300} took {rng.randrange(10**8)} ms" if n % 3
        else f"[{n:05d}] größe {rng.randrange(10**9):x} of ٣"
        for n in range(ROWS)
    ]  # fmt: skip
    return pa.table(
        {"k": range(ROWS), "message": messages, "w": [f"w{n % 9}" for n in range(ROWS)]}
    )


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture(params=["whole", "in parts"], autouse=True)
def chunks_are_read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are read as small ones are, all at once, or as large ones are: the beginning first."""
    if request.param == "in parts":
        monkeypatch.setattr("lsm_fragment.container.reader._BEGIN_BYTES", 512)
        monkeypatch.setattr("compactor.read.fragment_columns._REQUEST_BYTES", 0)


@pytest.fixture
def table(store: Store, tmp_path: Path) -> Snapshot:
    rows = rows_of_logs()
    parts = [rows[:2000], rows[2000:]]
    return ingest_tables(store, parts, tmp_path, sort=parse_sort_schema("k"), max_rows=700).latest


def expected(condition: str) -> pa.Table:
    rows = rows_of_logs()
    arrays = {name: rows[name].combine_chunks() for name in rows.schema.names}
    return rows.filter(matching(parse_where(condition, rows.schema), arrays, ROWS))


def scanned(store: Store, table: Snapshot, columns: list[str] | None, condition: str) -> pa.Table:
    batches = list(scan(store, table, columns, condition_on(table.table, condition)))
    names = columns or ["k", "message", "w"]
    return pa.Table.from_batches(batches) if batches else expected("FALSE").select(names)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_scans_return_the_rows_that_a_text_scan_does(
    store: Store, table: Snapshot, condition: str
) -> None:
    for columns in (None, ["w"], ["message"]):
        found = scanned(store, table, columns, condition)
        assert found.to_pydict() == expected(condition).select(found.schema.names).to_pydict()


@pytest.mark.parametrize("condition", CONDITIONS)
def test_overlapping_runs_with_deleted_rows_return_the_rows_that_a_text_scan_does(
    store: Store, tmp_path: Path, condition: str
) -> None:
    rows = rows_of_logs()
    parts = [rows.take(list(range(first, ROWS, 3))) for first in range(3)]
    log = ingest_tables(store, parts, tmp_path, sort=parse_sort_schema("k"), max_rows=300)
    deleted = "k > 900 AND k < 1100 OR message LIKE '%disk%' AND k > 2500"
    delete_rows(store, log, deleted)
    gone = expected(deleted)["k"]
    for columns in (None, ["w"]):
        found = scanned(store, log.latest, columns, condition)
        wanted = expected(condition)
        wanted = wanted.filter(pc.invert(pc.is_in(wanted["k"], value_set=gone)))
        assert found.to_pydict() == wanted.select(found.schema.names).to_pydict()


@pytest.mark.parametrize("condition", ["message LIKE '%u9%'", "message LIKE '%ERROR%'"])
def test_deletes_find_the_rows_that_a_text_scan_does(
    store: Store, tmp_path: Path, condition: str
) -> None:
    log = ingest_tables(
        store, [rows_of_logs()], tmp_path, sort=parse_sort_schema("k"), max_rows=700
    )
    report = delete_rows(store, log, condition)
    assert report.rows == expected(condition).num_rows
    left = scanned(store, log.latest, ["k"], "k >= 0")["k"]
    gone = pa.array(sorted(set(range(ROWS)) - set(left.to_pylist())))
    assert gone.to_pylist() == expected(condition)["k"].to_pylist()
    # Deleted rows are not joined any more, and stay away.
    assert scanned(store, log.latest, ["k"], condition).num_rows == 0
    assert pc.min(left).as_py() == 0


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("message LIKE '%nowhere%'", 5),
        ("message = 'ERROR of disks'", 5),
        ("message LIKE '%ERROR%'", 0),  # all of them have such rows
        ("message LIKE '%u9999%'", 0),  # only variables tell
        ("message LIKE '%u9999%' AND message LIKE '%nowhere%'", 0),  # the first is asked before
        ("message LIKE '%nowhere%' OR message IS NULL", 0),
        ("k < 700 AND message LIKE '%nowhere%'", 1),  # statistics skip the others
        ("w = 'w77' AND message LIKE '%nowhere%'", 0),  # no row is left to ask for
        ("message IS NULL AND w = 'w77'", 0),
    ],
)
def test_row_groups_that_templates_rule_out_are_counted(
    store: Store, table: Snapshot, condition: str, count: int, threads: int
) -> None:
    report = ScanReport()
    where = condition_on(table.table, condition)
    list(scan(store, table, ["k"], where, report, threads=threads))
    assert report.row_groups_ruled_out_by_templates == count
    ending = f"; templates ruled out {count} row group{'s' if count > 1 else ''}"
    assert str(report).endswith(ending) == bool(count)


@pytest.mark.parametrize(
    ("condition", "columns", "joined"),
    [
        ("message LIKE '%nowhere%'", None, 0),
        ("message LIKE '%ERROR%'", ["k"], 0),  # sure of every template
        # Only what is returned.
        ("message = 'ERROR of disk'", ["message"], 59),
        ("message LIKE '%ERROR%' AND message LIKE '%u9%'", ["k"], 0),
        ("k = 7 AND message LIKE '%u7%'", ["k"], 1),
    ],
)
def test_no_more_rows_are_joined_than_have_to_be(
    store: Store,
    table: Snapshot,
    monkeypatch,
    condition: str,
    columns: list[str] | None,
    joined: int,
) -> None:
    texts, rows = TemplateChunk.texts, 0

    def joining(chunk: TemplateChunk, chosen: Any = None) -> pa.Array:
        nonlocal rows
        found = texts(chunk, chosen)
        rows += len(found)
        return found

    monkeypatch.setattr(TemplateChunk, "texts", joining)
    assert scanned(store, table, columns, condition).num_rows == expected(condition).num_rows
    assert rows == joined


def large_table(store: Store, tmp_path: Path) -> Snapshot:
    """Three row groups, each with a chunk of messages of some 55 KB."""
    rng = random.Random(7)
    rows = 12_000
    lines = [
        f"user {rng.randrange(2**28):x}7 took {rng.randrange(10**9)} ms and {rng.randrange(10**6)}"
        for _ in range(rows)
    ]
    lines[5_000] = "ERROR of disk"
    parts = [pa.table({"k": range(rows), "message": lines})]
    log = ingest_tables(store, parts, tmp_path, sort=parse_sort_schema("k"), max_rows=4_000)
    return log.latest


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("condition", "columns", "rows", "requests", "share"),
    [
        ("message LIKE '%nowhere%'", ["k"], 0, 3, 0.2),
        ("message LIKE 'user%'", [], 11_999, 3, 0.2),  # every row of the templates that match
        ("message IS NOT NULL", [], 12_000, 3, 0.2),
        ("message = 'ERROR of disk'", [], 1, 1, 0.2),  # statistics rule out the others
        ("message = 'ERROR of disk'", ["message"], 1, 2, 0.5),  # the rest of one chunk
        ("message LIKE '%nowhere%'", ["message"], 0, 3, 0.2),
    ],
)
def test_variables_are_not_read_where_templates_decide(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    threads: int,
    condition: str,
    columns: list[str],
    rows: int,
    requests: int,
    share: float,
) -> None:
    monkeypatch.setattr("lsm_fragment.container.reader._BEGIN_BYTES", 4096)
    store = LocalStore(str(tmp_path / "table"))
    table = large_table(store, tmp_path)
    [entry] = table.fragments.all()
    footer = open_fragment(store, entry.key, entry.size_bytes).footer
    [first, *_] = chunks = footer.chunks("message")
    ranges: list[tuple[int, int]] = []
    read = StoredObject.read_range

    def reading(stored: StoredObject, start: int, length: int) -> bytes:
        if first.offset <= start and start + length <= chunks[-1].end:
            ranges.append((start, length))
        return read(stored, start, length)

    monkeypatch.setattr(StoredObject, "read_range", reading)
    where = condition_on(table.table, condition)
    found = scan(store, table, columns, where, threads=threads)
    assert sum(batch.num_rows for batch in found) == rows
    assert len(ranges) == requests
    assert sum(length for _, length in ranges) < share * (chunks[-1].end - first.offset)


def test_object_stores_are_asked_once_for_chunks_whose_text_is_needed(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lsm_fragment.container.reader._BEGIN_BYTES", 4096)
    table = large_table(store, tmp_path)

    def requests(condition: str, request_bytes: int) -> int:
        monkeypatch.setattr("compactor.read.fragment_columns._REQUEST_BYTES", request_bytes)
        asked: list[int] = []
        read = StoredObject.read_range

        def reading(stored: StoredObject, start: int, length: int) -> bytes:
            asked.append(start)
            return read(stored, start, length)

        with monkeypatch.context() as patch:
            patch.setattr(StoredObject, "read_range", reading)
            list(scan(store, table, [], condition_on(table.table, condition)))
        return len(asked) - 1  # without that for the footer

    assert requests("message LIKE '%nowhere%'", 0) == 3
    assert requests("message LIKE '%77777%'", 0) == 4  # after the first chunk it is known
    assert requests("message LIKE '%77777%'", 2 << 20) == 3


def test_codes_are_decoded_and_checked_only_where_rows_differ() -> None:
    rng = random.Random(1)
    numbers = [rng.randrange(10**8) for _ in range(700)]
    texts = pa.array([f"user u{n % 999} took {n} ms, waited {n * 7 % 10**7} ms" for n in numbers])
    chunk = make_chunk(texts, level=1)
    head = chunk.parts(BlockKind.DATA)[0]
    meta = bytearray(chunk.meta)
    # Root, templates, their lengths, codes: a constant, whose parameter is the code.
    struct.pack_into("<q", meta, 3 * NODE_BYTES + 24, 7)
    header = unpack_block_header(head, name="", offset=0)
    block = Block(
        header=header, meta=bytes(meta), stored=chunk.stored, offset=0, name="mem", column="message"
    )
    column = TemplatedColumn(TemplateChunk(block, pa.string()))
    assert column.matching(Like("message", "%nowhere%"), None).true_count == 0
    assert column.matching(Like("message", "user%"), None).true_count == 700
    assert not column.is_null().true_count
    with pytest.raises(CorruptFragmentError):
        column.matching(Like("message", "%u7%"), None)
    with pytest.raises(CorruptFragmentError):
        _ = column.codes


def test_damage_among_variables_hides_from_templates_and_not_from_verify(
    store: MemoryStore, tmp_path: Path
) -> None:
    table = large_table(store, tmp_path)
    [entry] = table.fragments.all()
    [chunk, *_] = open_fragment(store, entry.key, entry.size_bytes).footer.chunks("message")
    damaged = bytearray(store.objects[entry.key])
    damaged[chunk.end - 1] ^= 1
    store.objects[entry.key] = bytes(damaged)
    assert scanned(store, table, ["k"], "message LIKE '%nowhere%'").num_rows == 0
    with pytest.raises(CorruptFragmentError, match="checksum"):
        scanned(store, table, ["message"], "k < 4000")
    [fault] = verify(store, table).faults
    assert entry.key in fault
    assert "checksum" in fault
