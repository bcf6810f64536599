"""Numbers of the log that no writer makes: damage that is named, before anything goes by them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from msgspec import structs
from msgspec.structs import replace

from compactor.cli.main import run
from compactor.errors import DataError, TableError
from compactor.read.read_reports import ScanReport
from compactor.read.scan_tasks import RowGroups, tasks_of
from compactor.stores.local import LocalStore
from compactor.table.checkpoint import checkpoint_bytes, read_checkpoint
from compactor.table.commit_log import CommitLog
from compactor.table.compaction_record import records_from_json
from compactor.table.entry import Deletion, FragmentEntry, SkipIndex
from compactor.table.entry_table import EntryTable
from compactor.table.fragments import FragmentMap
from compactor.table.numbers import MIN_ROW_GROUP_BYTES
from compactor.table.snapshot import Snapshot, Totals
from compactor.table.version import Changes, Operation, Version
from lsm_fragment.container.footer import ColumnBytes
from lsm_fragment.container.writer import WriterOptions
from tests.support.fragments import write_fragment
from tests.support.tables import append_table, log_rows
from tests.support.wording import refuses
from tests.table.test_commit_log import METADATA, entry

HUGE = (10**25, 10**30, 2**63, -1)
DELETES = f"data/{'0' * 20}-a.deletes"
SKIPS = f"data/{'0' * 20}-a.skips"
LEASE = {
    "compaction_id": "c",
    "owner": "o",
    "inputs": [],
    "output_level": 1,
    "expires_unix_ms": 5,
    "began_unix_ms": 1,
}
WINDOWS = {"column": "ts", "window_seconds": 60, "retention_seconds": 5}


def _in_entry(name: str) -> Callable[[dict[str, Any], Any], None]:
    def forge(document: dict[str, Any], number: Any) -> None:
        document["adds"][0][name] = number

    return forge


def _in(name: str, value: dict[str, Any], member: str) -> Callable[[dict[str, Any], Any], None]:
    def forge(document: dict[str, Any], number: Any) -> None:
        holder = document["metadata"] if name in ("windows", "ttl", "skip_index") else document
        forged = value | {member: number}
        holder[name] = [forged] if name in ("leases", "quarantines") else forged

    return forge


def _of_entry(value: Callable[[Any], Any], name: str) -> Callable[[dict[str, Any], Any], None]:
    return lambda document, number: document["adds"][0].update({name: value(number)})


FORGERIES: dict[str, tuple[str, Callable[[dict[str, Any], Any], None]]] = {
    **{
        name: (name, _in_entry(name))
        for name in (
            "level", "rows", "row_groups", "peak_chunk_bytes", "peak_row_bytes", "size_bytes", "tombstones",
        )
    },
    "sequence": ("sequence[1]", _of_entry(lambda n: [1, n], "sequence")),
    "column": ("columns['k'] raw", _of_entry(lambda n: {"k": [n, 1]}, "columns")),
    "row_hash": ("row_hash", _of_entry(lambda n: f"{n:x}" + "0" * 20, "row_hash")),
    "deletion offset": ("deletion offset", _of_entry(lambda n: [DELETES, n, 1, 1, "0"], "deletion")),
    "deletion length": ("deletion length", _of_entry(lambda n: [DELETES, 1, n, 1, "0"], "deletion")),
    "deletion rows": ("deletion rows", _of_entry(lambda n: [DELETES, 1, 1, n, "0"], "deletion")),
    "skip offset": ("skip_index offset", _of_entry(lambda n: [SKIPS, {"k": [n, 1, "0"]}], "skip_index")),
    "skip length": ("skip_index length", _of_entry(lambda n: [SKIPS, {"k": [1, n, "0"]}], "skip_index")),
    "version": ("version", lambda document, n: document.update(version=n)),
    "min_base_version": ("min_base_version", lambda document, n: document.update(min_base_version=n)),
    "oldest": ("oldest", lambda document, n: document.update(oldest=n)),
    "time": ("committed_unix_ms", lambda document, n: document.update(committed_unix_ms=n)),
    "lease level": ("output_level", _in("leases", LEASE, "output_level")),
    "lease begin": ("began_unix_ms", _in("leases", LEASE, "began_unix_ms")),
    "lease end": ("expires_unix_ms", _in("leases", LEASE, "expires_unix_ms")),
    "quarantine": ("since_unix_ms", _in("quarantines", {"key": "k", "reason": "r"}, "since_unix_ms")),
    "windows": ("window_seconds", _in("windows", WINDOWS, "window_seconds")),
    "retention": ("retention_seconds", _in("windows", WINDOWS, "retention_seconds")),
    "ttl": ("ttl seconds", _in("ttl", {"column": "ts"}, "seconds")),
    "skips": ("bytes_per_row_group", _in("skip_index", {"columns": {"id": "bloom"}}, "bytes_per_row_group")),
}  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path / "t")
    append_table(store, log_rows(20, 1), "service,ts")
    return store


def forge(store: LocalStore, change: Callable[[dict[str, Any]], None]) -> None:
    """The first version as `change` makes it; its checksum is right."""
    path = Path(store.url) / "_log" / "00000000000000000001.json"
    document = json.loads(path.read_bytes().partition(b"\n")[0])
    change(document)
    text = json.dumps(document).encode()
    path.write_bytes(text + b"\n" + xxhash.xxh3_64_hexdigest(text).encode() + b"\n")


@pytest.mark.parametrize("number", HUGE)
@pytest.mark.parametrize(("named", "change"), FORGERIES.values(), ids=FORGERIES.keys())
def test_a_number_that_no_writer_makes_is_a_damaged_log_that_names_it(
    store: LocalStore, named: str, change: Callable[[dict[str, Any], Any], None], number: int
) -> None:
    forge(store, lambda document: change(document, number))
    with refuses(DataError, named):
        CommitLog(store).current()


@pytest.mark.parametrize("name", ["oldest_unix_ms", "window"])
def test_times_of_rows_may_be_long_ago_but_are_64_bits(store: LocalStore, name: str) -> None:
    forge(store, lambda document: document["adds"][0].update({name: -(2**63)}))
    CommitLog(store).current()
    forge(store, lambda document: document["adds"][0].update({name: -(2**63) - 1}))
    with refuses(DataError, name):
        CommitLog(store).current()


@pytest.mark.parametrize(
    "forged",
    [
        {"level": 10**9},
        {"row_groups": 10**9, "rows": 10**12, "columns": {"x": [10**18, 1]}},
        {"row_groups": 21},
        {"rows": 2**62},
        {"size_bytes": 2**60},
        {"columns": {"x": [2**62, 1], "y": [2**62, 1]}},
        {"deletion": [DELETES, 0, 1, 21]},
        {"tombstones": 21},
    ],
)
def test_numbers_of_a_fragment_that_contradict_one_another_end_every_command(
    store: LocalStore, forged: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    forge(store, lambda document: document["adds"][0].update(forged))
    for command in ("inspect", "verify", "compact", "vacuum"):
        assert run([command, store.url]) == 3
        assert "is damaged" in capsys.readouterr().err


def test_sums_over_a_version_and_over_all_are_64_bits(store: LocalStore) -> None:
    def many(document: dict[str, Any]) -> None:
        [first] = document["adds"]
        first |= {"row_groups": 2**31, "rows": 2**62, "size_bytes": 2**40}
        document["adds"] = [first | {"key": f"data/f{n}.frag"} for n in range(3)]

    forge(store, many)
    with refuses(DataError):
        CommitLog(store).current()
    fragments = [
        structs.replace(entry(f"f{n}"), row_groups=2**31, rows=2**62, size_bytes=2**40)
        for n in range(2)
    ]
    totals = Totals(ingested_rows=2**63 - 1)
    snapshot = Snapshot(version=0, metadata=METADATA, fragments=FragmentMap(), totals=totals)
    with refuses(DataError):
        snapshot.apply(
            Version(
                number=1,
                commit_id="id",
                committed_unix_ms=1,
                changes=Changes(operation=Operation.INGEST, adds=(fragments[0],)),
            )
        )


def _checkpoint(changed: FragmentEntry | None = None, **more: Any) -> bytes:
    fragments = FragmentMap(EntryTable.of([changed or entry("a")]))
    return checkpoint_bytes(
        replace(Snapshot(version=3, metadata=METADATA, fragments=fragments), **more)
    )


@pytest.mark.parametrize(
    "more",
    [
        {"min_base_version": 4},
        {"oldest": 10**30},
        {"committed_unix_ms": 10**18},
        {"version": 10**30},
        {"totals": Totals(ingested_rows=10**30)},
    ],
)
def test_numbers_of_a_checkpoint_are_looked_at_too(more: dict[str, Any]) -> None:
    read_checkpoint(_checkpoint(), name="c")
    [name] = more
    with refuses(DataError, name if name != "totals" else "<="):
        read_checkpoint(_checkpoint(**more), name="c")


@pytest.mark.parametrize(
    "forged",
    [
        {"level": 65},
        {"row_groups": 2},
        {"rows": 2**33},
        {"size_bytes": 2**60},
        {"deletion": Deletion(DELETES, 0, 1, 5, 0)},
    ],
)
def test_entries_of_a_checkpoint_are_looked_at_as_they_are_made(forged: dict[str, Any]) -> None:
    snapshot = read_checkpoint(_checkpoint(structs.replace(entry("a"), **forged)), name="c")
    with refuses(DataError):
        snapshot.by_age()


def test_columns_of_a_checkpoint_are_looked_at_when_they_are_asked_for() -> None:
    columns = {"x": ColumnBytes(2**62, 1), "y": ColumnBytes(2**62, 1)}
    snapshot = read_checkpoint(_checkpoint(structs.replace(entry("a"), columns=columns)), name="c")
    [made] = snapshot.by_age()
    with refuses(DataError):
        _ = made.raw_bytes


def test_a_record_with_a_number_that_is_none_is_left_out() -> None:
    good = {"compaction_id": "a", "rows_in": 2**63 - 1}
    assert (
        len(records_from_json([good, good | {"rows_in": 2**63}, good | {"seconds": -1e300}])) == 1
    )


@pytest.mark.parametrize(
    "forged",
    [
        {"level": 65},
        {"row_groups": 0},
        {"skip_index": SkipIndex(SKIPS, {}), "tombstones": 2},
    ],
)
def test_what_readers_would_refuse_is_not_committed(
    store: LocalStore, forged: dict[str, Any]
) -> None:
    log = CommitLog(store)
    version = log.current().version
    added = structs.replace(entry("new"), key=f"data/{version:020d}-a-0.frag", **forged)
    with refuses(TableError):
        log.commit(lambda _: Changes(operation=Operation.INGEST, adds=(added,)))
    assert log.refresh().version == version


@pytest.mark.parametrize("level", [0, 3])
def test_no_row_group_is_smaller_than_the_least_that_is_believed(level: int) -> None:
    groups = 2000
    rows = pa.table({"k": pa.array([7] * groups, pa.int8())})
    data = write_fragment(rows, "k", WriterOptions(1, compression_level=level))
    assert len(data) >= groups * MIN_ROW_GROUP_BYTES
    assert len(data) < 2 * groups * MIN_ROW_GROUP_BYTES


def test_parts_are_not_more_than_can_be_handed_out_whatever_the_log_says() -> None:
    forged = structs.replace(
        entry("a"),
        row_groups=2**40,
        rows=2**40,
        size_bytes=2**50,
        columns={"x": ColumnBytes(2**62, 1)},
    )
    snapshot = Snapshot(
        version=1, metadata=METADATA, fragments=FragmentMap(EntryTable.of([forged, entry("b")]))
    )
    tasks = tasks_of(snapshot, None, 1, ScanReport())
    parts = [part for task in tasks for part in task if isinstance(part, RowGroups)]
    assert len(parts) < 110_000
    assert (parts[0].start, parts[-2].stop) == (0, 2**40)
