"""Fragments written by earlier builds still read as the same rows."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path

import pytest

from compactor.read.read_reports import ScanReport
from compactor.read.scan import scan
from compactor.read.verify import verify
from compactor.settings.compaction import Strategy
from compactor.table.commit_log import CommitLog
from compactor.table.conditions import condition_on
from compactor.table.object_names import parse_checkpoint
from compactor.table.version import Changes, Operation
from lsm_fragment.arrays.type_json import schema_to_json
from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.encodings.node import Encoding
from tests.fuzz.anatomy import NODE, Anatomy
from tests.golden.build import FOLDER, golden_tables
from tests.golden.build_tables import FOLDER as TABLES_FOLDER
from tests.golden.build_tables import ROWS, TABLES, load, rows_by_version
from tests.support.fragments import BytesSource, read_random, read_stream, rows_of
from tests.support.spec_reader import Fragment
from tests.support.tables import compact_table, table_rows

SUMS = Path(__file__).parent / "SHA256SUMS"

FILES = sorted(FOLDER.glob("*.frag"))


def test_all_golden_fragments_are_there() -> None:
    assert sorted(golden_tables()) == [path.stem for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_fragments_read_as_the_rows_they_were_written_from(path: Path) -> None:
    data = path.read_bytes()
    expected = json.loads(path.with_suffix(".json").read_text())
    table, _, _ = golden_tables()[path.stem]
    assert [repr(row) for row in rows_of(table)] == expected
    assert [repr(row) for row in rows_of(read_random(data))] == expected
    assert [repr(row) for row in rows_of(read_stream(data))] == expected
    assert Fragment(data).rows == len(expected)
    assert f"{Fragment(data).row_hash():016x}" == Fragment(data).footer["row_hash"]


@pytest.mark.parametrize("name", TABLES)
def test_golden_tables_read_as_the_rows_they_had_at_every_version(name: str) -> None:
    expected = json.loads((TABLES_FOLDER / name / ROWS).read_text())
    store = load(name)
    assert rows_by_version(store) == expected
    report = verify(store, CommitLog(store).current())
    assert not report.faults
    newest = expected[max(expected, key=int)]
    assert report.rows >= len(newest)
    for key in [key for key in store.objects if parse_checkpoint(key) is not None]:
        del store.objects[key]  # what a checkpoint says, the log says as well
    assert rows_by_version(store) == expected


@pytest.mark.parametrize("name", TABLES)
def test_golden_tables_can_be_compacted(name: str) -> None:
    expected = json.loads((TABLES_FOLDER / name / ROWS).read_text())
    store = load(name)
    log = CommitLog(store)
    quarantine = tuple(log.current().quarantine)
    log.commit(lambda _: Changes(operation=Operation.QUARANTINE, released_fragments=quarantine))
    before = [repr(row) for row in table_rows(store)]
    assert before == expected[max(expected, key=int)]
    compact_table(store, strategy=Strategy.FULL)
    after = CommitLog(store).current()
    assert not any(entry.deletion for entry in after.fragments.values())
    assert [repr(row) for row in table_rows(store)] == before
    assert not verify(store, after).faults


def test_a_query_of_a_golden_table_by_its_skip_indexes_finds_what_is_there() -> None:
    store = load("skipping")
    snapshot = CommitLog(store).current()
    rows = table_rows(store)
    trace = rows[17]["trace"]
    where = condition_on(snapshot.table, f"trace = '{trace}'")
    report = ScanReport()
    found = [
        row for b in scan(store, snapshot, where=where, report=report) for row in b.to_pylist()
    ]
    assert found == [row for row in rows if row["trace"] == trace]
    assert (report.fragments_skipped, report.row_groups_skipped) == (3, 2)


def test_golden_files_are_never_changed() -> None:
    lines = [line.split("  ", 1) for line in SUMS.read_text().splitlines()]
    listed = {name: digest for digest, name in lines}
    root = SUMS.parent
    stored = [*root.glob("v*/*"), *(root / "tables").rglob("*"), *(root / "corpus").rglob("*")]
    found = {path.relative_to(root).as_posix(): path for path in stored if path.is_file()}
    assert sorted(found) == sorted(listed), "list new ones: sha256sum, see tests/golden/README.md"
    changed = [n for n, p in found.items() if sha256(p.read_bytes()).hexdigest() != listed[n]]
    assert changed == []
    assert sum(path.stat().st_size for path in found.values()) < 2 << 20


def test_golden_fragments_have_every_encoding_and_type() -> None:
    encodings, kinds = set(), set()
    for path in FILES:
        data = path.read_bytes()
        reader = FragmentReader(BytesSource(data), len(data), path.stem)
        encodings |= {c.encoding for chunks in reader.footer.columns.values() for c in chunks}
        for block in Anatomy.of(data).blocks:
            encodings |= {Encoding(node[0]).name for node in NODE.iter_unpack(block.meta)}
        kinds |= set(re.findall(r'"kind": ?"(\w+)"', json.dumps(schema_to_json(reader.schema))))
    assert encodings == set(Encoding.__members__)
    assert kinds == set(re.findall(r"`(\w+)`", _types_of_specification()))


def _types_of_specification() -> str:
    """The kinds of SPEC.md's table, those written as a range in full."""
    text = (Path(__file__).parents[2] / "format" / "SPEC.md").read_text()
    rows = [line.split("|")[1] for line in text.splitlines() if line.endswith("the same |")]
    kinds = " ".join(row.split("+")[0] for row in rows)
    return kinds + " `int16` `int32` `uint16` `uint32`"
