"""Claim: opening a table stays fast with 100,000 commits, and with 1,000,000 live fragments.

    python -m bench.bench_log --folder /dev/shm     100,000 commits, 1,000,000 fragments, a local folder
    python -m bench.bench_log --commits 5000 --fragments 50000

The log files are written as commits would write them, and the checkpoints where the rule of `CommitLog` puts
them, with the longest tail that it allows after the last one. A million live fragments are in one checkpoint,
as after a million ingests, with 64 commits after it. To open is to call `CommitLog(store).current()` on a new
object.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from compactor.planner.debt import debt_of
from compactor.planner.plan import plan_compactions
from compactor.settings.compaction import CompactionSettings, Policy
from compactor.stores.local import LocalStore
from compactor.table.checkpoint import checkpoint_bytes
from compactor.table.commit_log import CommitLog
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from compactor.table.object_names import checkpoint_key, fragment_key, version_key
from compactor.table.snapshot import Snapshot, replay
from compactor.table.version import Changes, Operation, Version
from lsm_fragment.container.footer import ColumnBytes
from lsm_fragment.keys.sort_schema import parse_sort_schema

_COLUMNS = 10
_TAIL = 64
_BEFORE = 100  # versions up to the checkpoint, which has all fragments
_MAX = 1024  # versions between two checkpoints at most, see compactor/table/commit_log.py
_LONGEST_TAIL = _MAX - 1
_Result = TypeVar("_Result")


def metadata() -> TableMetadata:
    schema = pa.schema(
        [("service", pa.string()), ("timestamp", pa.timestamp("us", "UTC"))]
        + [(f"column{n}", pa.string()) for n in range(_COLUMNS - 2)]
    )
    return TableMetadata(schema=schema, sort=parse_sort_schema("service,timestamp"))


def entry(number: int) -> FragmentEntry:
    """Makes the entry of a large fragment of level 3; one in a hundred thousand is of level 0."""
    key = fragment_key(number, f"{number:032x}", 0)
    return FragmentEntry(
        key=key,
        level=0 if number % 100_000 == 0 else 3,
        run=key,
        sequence=(number, 0),
        rows=1_000_000,
        size_bytes=500_000_000 + number,
        row_hash=number * 0x9E3779B97F4A7C15 % 2**64,
        first_key=(f"service-{number:08d}", number * 1_000),
        last_key=(f"service-{number:08d}", number * 1_000 + 999),
        row_groups=16,
        peak_chunk_bytes=4_000_000,
        peak_row_bytes=900,
        columns={
            f"column{n}": ColumnBytes(50_000_000 + number, 5_000_000 + n) for n in range(_COLUMNS)
        },
    )


def timed(what: str, act: Callable[[], _Result]) -> _Result:
    started = time.perf_counter()
    result = act()
    print(f"  {what}: {time.perf_counter() - started:.2f} s")
    return result


def many_commits(folder: Path, commits: int) -> None:
    print(
        f"{commits:,} commits of one fragment each, the last {_LONGEST_TAIL:,} after the checkpoint"
    )
    versions = [
        Version(
            number,
            f"{number:032x}",
            0,
            Changes(
                operation=Operation.INGEST,
                adds=(entry(number),),
                metadata=metadata() if number == 1 else None,
            ),
        )
        for number in range(1, commits + 1)
    ]
    (folder / "_log").mkdir(parents=True)
    for version in versions:
        (folder / version_key(version.number)).write_bytes(version.to_bytes())
    last = max(1, commits - _LONGEST_TAIL)
    store = LocalStore(folder)
    for number in sorted({commits // 2 // _MAX * _MAX or 1, last}):
        data = checkpoint_bytes(replay(Snapshot.empty(), versions[:number]))
        store.create(checkpoint_key(number), data)
    log = CommitLog(store)
    snapshot = timed("open", log.current)
    assert len(snapshot.fragments) == commits
    timed("look again", log.current)
    changes = Changes(operation=Operation.INGEST, adds=(entry(commits + 1),))
    timed("commit", lambda: log.commit(lambda _: changes))
    half = commits // 2
    earlier = timed(f"read version {half:,}", lambda: log.history.at(half, snapshot))
    assert len(earlier.fragments) == half


def many_fragments(folder: Path, fragments: int) -> None:
    print(f"{fragments:,} live fragments, {_TAIL} commits after the checkpoint")
    store = LocalStore(folder)
    first = Changes(
        operation=Operation.INGEST, adds=tuple(map(entry, range(fragments))), metadata=metadata()
    )
    snapshot = replace(Snapshot.empty().apply(Version(1, "id", 0, first)), version=_BEFORE)
    data = timed("make the checkpoint", lambda: checkpoint_bytes(snapshot))
    print(f"  {len(data) / 1e6:.1f} MB")
    for number in range(1, _BEFORE + 1):
        store.create(
            version_key(number),
            Version(number, "id", 0, Changes(operation=Operation.INGEST)).to_bytes(),
        )
    store.create(checkpoint_key(_BEFORE), data)
    for number in range(_BEFORE + 1, _BEFORE + 1 + _TAIL):
        changes = Changes(operation=Operation.INGEST, adds=(entry(fragments + number),))
        store.create(version_key(number), Version(number, "id", 0, changes).to_bytes())
    log = CommitLog(store)
    opened = timed("open", log.current)
    assert len(opened.fragments) == fragments + _TAIL
    timed("compaction debt", lambda: debt_of(opened, Policy()))
    again = timed("make the next checkpoint", lambda: checkpoint_bytes(opened))
    assert len(again) > len(data)
    changes = Changes(operation=Operation.INGEST, adds=(entry(2 * fragments),))
    timed("commit", lambda: log.commit(lambda _: changes))
    timed("make all entries", lambda: opened.fragments.all())
    timed("plan", lambda: plan_compactions(opened, Policy(), CompactionSettings(), 0))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--commits", type=int, default=100_000)
    parser.add_argument("--fragments", type=int, default=1_000_000)
    parser.add_argument("--folder", help="Where to put the tables; /dev/shm spares 100,000 fsyncs.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        many_commits(Path(folder) / "commits", options.commits)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        many_fragments(Path(folder) / "fragments", options.fragments)
    print(f"peak RSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
