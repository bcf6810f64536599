"""Compares a version with an earlier one by the log: which rows came and went, and whether compactions kept
them.

Each entry of the log has the rows and the row hash of its fragment. The hash of several fragments is the sum
of theirs, so a compaction that keeps all rows keeps both sums, however it arranges the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from compactor.common.counts import counted
from compactor.errors import CompactorError
from compactor.read.fragment_columns import open_fragment
from compactor.read.read_reports import AgainstReport
from compactor.stores.base import Store
from compactor.table.entry import FragmentEntry
from compactor.table.history import History
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import KEEPS_ROWS, Snapshot
from compactor.table.version import Operation, Version
from lsm_fragment.arrays.hashing import combine
from lsm_fragment.errors import FormatError

_KEEPS_ROWS: Final = KEEPS_ROWS - {Operation.ALTER}
"""Operations that change neither rows nor columns that readers see."""


def compare(
    store: Store, history: History, before: Snapshot, after: Snapshot
) -> tuple[AgainstReport, list[str]]:
    """Returns what the versions after `before` did to rows, and a fault for each that should have kept them.

    Reads the log between the two, and fragments' headers only where a row hash differs. Raises
    `OvertakenError`, `DataError`.
    """
    report = AgainstReport(version=before.version, rows_before=_live(before.fragments.all()))
    faults: list[str] = []
    live = {entry.key: entry for entry in before.fragments.all()}
    table = before.table
    for version in history.versions_after(before, after.version):
        changes = version.changes
        removed = [live.pop(key) for key in changes.removes]
        live.update((entry.key, entry) for entry in changes.adds)
        columns_before, table = _columns(table), changes.metadata or table
        is_of_columns = _columns(table) != columns_before
        if changes.operation is Operation.ALTER and not (is_of_columns or removed or changes.adds):
            continue  # it set properties or skip indexes
        if changes.operation in _KEEPS_ROWS:
            fault = _kept(store, report, table, removed, changes.adds)
        else:
            fault = _changed(report, version, removed)
        if fault is not None:
            faults.append(f"{store.url}: version {version.number} ({changes.operation}) {fault}")
    report.rows_after = _live(list(live.values()))
    return report, faults


def _columns(table: TableMetadata) -> tuple[Any, ...]:
    return table.schema, table.names, table.redacted


def _live(entries: Sequence[FragmentEntry]) -> int:
    return sum(entry.live_rows for entry in entries)


def _kept(
    store: Store,
    report: AgainstReport,
    table: TableMetadata,
    removed: Sequence[FragmentEntry],
    added: Sequence[FragmentEntry],
) -> str | None:
    """Counts a version that should keep all rows. Returns its fault, if any."""
    if not removed and not added:
        return None
    rows_in, rows_out = _live(removed), _live(added)
    loses_rows = table.rows.merges or table.ttl is not None
    if rows_out > rows_in or (rows_out < rows_in and not loses_rows):
        return f"took {counted(rows_in, 'row')} and gave {rows_out:,}"
    hash_in = combine(*(entry.row_hash for entry in removed))
    hash_out = combine(*(entry.row_hash for entry in added))
    if hash_in == hash_out and rows_in == rows_out:
        report.proved += 1
        return None
    if rows_in == rows_out and _must_agree(store, removed, added):
        took = f"took {counted(rows_in, 'row')} of hash {hash_in:016x}"
        return f"{took} and gave as many of hash {hash_out:016x}"
    report.counted += 1
    report.left_out += rows_in - rows_out
    return None


def _must_agree(
    store: Store, removed: Sequence[FragmentEntry], added: Sequence[FragmentEntry]
) -> bool:
    """Says whether the row hashes have to be equal: no row was left out, no column was dropped or converted.

    Where a fragment is gone, nothing is known of its columns.
    """
    if any(entry.rows != entry.live_rows for entry in (*removed, *added)):
        return False
    try:
        ours, theirs = (
            {
                (field.name, field.type)
                for entry in entries
                for field in open_fragment(store, entry.key, entry.size_bytes).header.schema
            }
            for entries in (removed, added)
        )
    except (CompactorError, FormatError):
        return False
    return ours <= theirs and len({name for name, _ in theirs}) == len(theirs)


def _changed(
    report: AgainstReport, version: Version, removed: Sequence[FragmentEntry]
) -> str | None:
    """Counts a version that says how it changed rows. Returns its fault, if it did something else."""
    changes, operation = version.changes, version.changes.operation
    match operation:
        case Operation.INGEST if not removed:
            report.appended += _live(changes.adds)
        case Operation.DELETE | Operation.UPDATE | Operation.OVERWRITE:
            before = {entry.key for entry in removed}
            again = [entry for entry in changes.adds if entry.key in before]
            new = [entry for entry in changes.adds if entry.key not in before]
            report.appended += _live(new)
            report.deleted += _live(removed) - _live(again)
            if not _only_deletes(removed, again) or (new and operation is Operation.DELETE):
                return "changed fragments beyond their deleted rows"
            if len(again) < len(removed) and operation is not Operation.OVERWRITE:
                return "removed whole fragments"
        case _:
            report.others.append(f"version {version.number} ({changes.operation})")
    return None


def _only_deletes(removed: Sequence[FragmentEntry], again: Sequence[FragmentEntry]) -> bool:
    """Says whether fragments came back as they were, but for more deleted rows."""
    before = {entry.key: entry for entry in removed}
    return all(
        (entry.rows, entry.row_hash) == (before[entry.key].rows, before[entry.key].row_hash)
        and entry.deleted_rows > before[entry.key].deleted_rows
        for entry in again
    )
