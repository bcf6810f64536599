"""Golden tables: log, checkpoint, fragments, deleted rows, skip indexes, as a program of that time left them.

`python -m tests.golden.build_tables` adds those that are not there yet; what is there is never written anew.
A change to the log, to checkpoints or to what lies beside fragments gets a table of its own here. Beside the
objects of each is `rows.json`: the rows at every version that can be read, as `repr` has them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from compactor.predicate.skipping.spec import SkipKind, SkipSpec
from compactor.read.scan import scan
from compactor.rows.policy import RowFunction, RowKind, RowPolicy, Ttl
from compactor.settings.compaction import CompactionSettings, Strategy
from compactor.stores.base import Store
from compactor.table.checkpoint import checkpoint_bytes
from compactor.table.commit_log import CommitLog
from compactor.table.metadata import TimeWindows
from compactor.table.object_names import checkpoint_key
from compactor.table.version import Changes, Lease, Operation, Quarantine
from compactor.write.alter import Alteration, alter_table
from compactor.write.delete import delete_rows
from compactor.write.ingest import IngestOptions
from tests.support.memory_store import MemoryStore
from tests.support.tables import append_table, compact_table

FOLDER = Path(__file__).parent / "tables"
ROWS = "rows.json"


def some_rows(start: int, count: int = 40) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {
            "größe": pa.array([n * 7919 % 101 for n in numbers], pa.int32()),
            "service": [None if n % 11 == 0 else f"service-{n % 4}" for n in numbers],
            "trace": [f"{n * 2654435761 % 2**40:010x}" for n in numbers],
            "time": pa.array([n * 977 for n in numbers], pa.timestamp("ms", "UTC")),
            "tags": [[f"t{n % 3}"] * (n % 3) for n in numbers],
        }
    )  # fmt: skip


def plain(store: MemoryStore) -> None:
    """Log files of protocol 1: ingests, a compaction, a lease, a quarantine; a checkpoint amid them."""
    for start in (0, 40, 80):
        append_table(store, some_rows(start), "service:desc:nulls_first,größe", max_rows=16)
    compact_table(store)
    _checkpoint(store)
    append_table(store, some_rows(120), None, max_rows=16)
    log = CommitLog(store)
    entry = min(log.current().fragments.values(), key=lambda entry: entry.level)
    lease = Lease(
        compaction_id="compaction-1",
        owner="host:1",
        inputs=(entry.key,),
        output_level=1,
        expires_unix_ms=1_700_000_000_000,
        began_unix_ms=1,
    )
    quarantine = Quarantine(entry.key, "for this table", 1_700_000_000_000)
    log.commit(lambda _: Changes(operation=Operation.LEASE, leases=(lease,)))
    log.commit(
        lambda _: Changes(
            operation=Operation.QUARANTINE,
            ended_leases=("compaction-1",),
            quarantines=(quarantine,),
        )
    )


def deleted(store: MemoryStore) -> None:
    """Protocol 2: deleted rows, some of them deleted twice over, and a compaction since."""
    for start in (0, 40):
        append_table(store, some_rows(start), "größe", max_rows=16)
    log = CommitLog(store)
    for condition in ("service = 'service-1'", "größe < 20"):
        delete_rows(store, log, condition)
    _checkpoint(store)
    append_table(store, some_rows(80), None, max_rows=16)
    delete_rows(store, log, "trace LIKE '00%' OR größe > 90")


def skipping(store: MemoryStore) -> None:
    """Protocol 3: skip indexes of both kinds, one added later; columns renamed, dropped and redacted."""
    skips = SkipSpec((("trace", SkipKind.BLOOM), ("service", SkipKind.VALUES)))
    for start in (0, 40):
        options = IngestOptions(skips=skips)
        append_table(store, some_rows(start), "größe", options, max_rows=16)
    log = CommitLog(store)
    alter_table(log, Alteration(renames={"time": "zeit"}, drops=["tags"], redacts=["service"]))
    append_table(store, some_rows(80).drop_columns(["tags", "time"]), None, max_rows=16)
    alter_table(log, Alteration(skips={"zeit": SkipKind.BLOOM}, order=["trace"]))
    append_table(store, some_rows(120).select(["größe", "trace"]), None, max_rows=16)
    _checkpoint(store)


def last_rows(store: MemoryStore) -> None:
    """Row policy `last` by a sequence, with tombstones and a time to live that none has outlived."""
    policy = RowPolicy(RowKind.LAST, sequence="time", delete_marker="gone")
    options = IngestOptions(rows=policy, ttl=Ttl("time", 10**10))
    for start in (0, 20, 40):
        rows = some_rows(start)
        gone = pa.array([n % 9 == 4 for n in range(len(rows))])
        append_table(store, rows.append_column("gone", gone), "größe", options, max_rows=16)
        if start == 20:
            compact_table(store)
    _checkpoint(store)


def aggregates(store: MemoryStore) -> None:
    """Row policy `aggregate`, and time windows."""
    policy = RowPolicy(
        RowKind.AGGREGATE,
        aggregates=(("größe", RowFunction.SUM), ("trace", RowFunction.MAX)),
    )
    options = IngestOptions(rows=policy, windows=TimeWindows("time", 60))
    for start in (0, 30, 60):
        rows = some_rows(start).drop_columns(["tags"])
        append_table(store, rows, "service,time", options, max_rows=16)
    compact_table(store)


def long_keys(store: MemoryStore) -> None:
    """Keys that begin alike, in several fragments of one level, of which one was rewritten."""
    small = CompactionSettings(target_fragment_bytes=1, max_rows_per_row_group=4)
    urls = [f"https://www.example.org/{'path/' * 20}{n // 4}" for n in range(16)]
    rows = pa.table({"url": urls, "id": range(16)})
    for part in (rows[:6], rows[6:]):
        append_table(store, part, "url")
    compact_table(store, small, strategy=Strategy.FULL)
    log = CommitLog(store)
    delete_rows(store, log, "id < 3")
    compact_table(store, small)


TABLES: dict[str, Callable[[MemoryStore], None]] = {
    make.__name__: make
    for make in (
        plain,
        deleted,
        skipping,
        last_rows,
        aggregates,
        long_keys,
    )
}


def load(name: str) -> MemoryStore:
    """A copy of a golden table."""
    root = FOLDER / name
    files = [path for path in root.rglob("*") if path.is_file() and path.name != ROWS]
    return MemoryStore({path.relative_to(root).as_posix(): path.read_bytes() for path in files})


def rows_by_version(store: Store) -> dict[str, list[str]]:
    """Rows at every version that can be read, in sort order."""
    newest = CommitLog(store).current()
    return {
        str(number): [
            repr(row)
            for batch in scan(store, CommitLog(store).at(number))
            for row in batch.to_pylist()
        ]
        for number in range(newest.oldest, newest.version + 1)
    }


def _checkpoint(store: MemoryStore) -> None:
    snapshot = CommitLog(store).current()
    store.objects[checkpoint_key(snapshot.version)] = checkpoint_bytes(snapshot)


def main() -> None:
    for name, make in TABLES.items():
        if (FOLDER / name).exists():
            continue
        store = MemoryStore()
        make(store)
        for key, data in store.objects.items():
            path = FOLDER / name / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        expected = json.dumps(rows_by_version(store), indent=0, ensure_ascii=False)
        (FOLDER / name / ROWS).write_text(expected + "\n")


if __name__ == "__main__":
    main()
