"""Verifies a whole table: log and checkpoints, checksums, order, statistics, counts and disjointness of
sorted runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from compactor.read.against import compare
from compactor.read.fragment_check import CheckedFragment, check_fragment
from compactor.read.limits import AHEAD_BYTES
from compactor.read.read_reports import VerifyReport
from compactor.read.steps import Step, in_order, thread_pool_of
from compactor.stores.base import Store
from compactor.table.entry import FragmentEntry
from compactor.table.history import History
from compactor.table.metadata import TableMetadata
from compactor.table.repair import log_faults
from compactor.table.snapshot import Snapshot
from lsm_fragment.keys.bounds import Bound
from lsm_fragment.threads import ThreadPool


def verify(
    store: Store,
    snapshot: Snapshot,
    *,
    before: Snapshot | None = None,
    threads: int = 1,
    on_progress: Callable[[int], None] = lambda _done: None,
) -> VerifyReport:
    """Reads all fragments of a snapshot and the whole log with its checkpoints.

    Reports faults instead of raising them. Does not count deleted rows.

    before: an earlier version, with which the log is compared.
    threads: number that decode and check: small fragments, or chunks of one large fragment, in parallel.
    on_progress: called with the number of fragments read so far.
    Raises `StoreError` only if the store cannot be reached or refuses a request, `OvertakenError` if a vacuum
    removes the version meanwhile.
    """
    report = VerifyReport(version=snapshot.version, faults=log_faults(store))
    exact: dict[str, tuple[Bound, Bound]] = {}
    steps = (_step(store, snapshot.table, entry) for entry in snapshot.by_age())
    with thread_pool_of(threads) as pool:
        for entry, found in in_order(steps, pool, AHEAD_BYTES):
            report.fragments += 1
            report.rows += found.rows
            report.bytes_read += found.bytes_read
            report.faults += found.faults
            if found.first_key is not None and found.last_key is not None:
                exact[entry.key] = (found.first_key, found.last_key)
            on_progress(report.fragments)
    report.faults += _overlaps_within_runs(store, snapshot, exact)
    if before is not None:
        report.against, faults = compare(store, History(store), before, snapshot)
        report.faults += faults
    return report


_Checked = tuple[FragmentEntry, CheckedFragment]


def _step(store: Store, table: TableMetadata, entry: FragmentEntry) -> Step[_Checked]:
    return Step(partial(_checked, store, table, entry), entry.raw_bytes)


def _checked(
    store: Store, table: TableMetadata, entry: FragmentEntry, pool: ThreadPool
) -> Iterator[_Checked]:
    return iter([(entry, check_fragment(store, table, entry, pool))])


def _overlaps_within_runs(
    store: Store, snapshot: Snapshot, exact: dict[str, tuple[Bound, Bound]]
) -> list[str]:
    compare = snapshot.table.key_comparator()
    runs: dict[str, list[tuple[Any, Any, str]]] = {}
    for entry in snapshot.fragments.all():
        if entry.key in exact:
            first, last = exact[entry.key]
            runs.setdefault(entry.sorted_run, []).append(
                (compare.key(first), compare.key(last), entry.key)
            )
    faults = []
    for ranges in runs.values():
        ranges.sort(key=lambda item: item[0])
        for (_, last, key), (first, _, next_key) in itertools.pairwise(ranges):
            if first <= last:
                faults.append(
                    f"{store.url}/{next_key}: its keys overlap those of {key}, of the same sorted run"
                )
    return faults
