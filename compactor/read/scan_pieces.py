"""Divides a table into pieces with disjoint keys, for tasks that read in parallel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from compactor.read.pruning import overlapping_fragments
from compactor.table.entry import FragmentEntry
from compactor.table.entry_table import EntryTable
from compactor.table.fragments import FragmentMap
from compactor.table.snapshot import Snapshot

_PIECE_BYTES: Final = 128 << 20
"""Target size of a decoded piece; overlapping fragments may force larger ones."""


def pieces_of(snapshot: Snapshot) -> Iterator[Snapshot]:
    """Yields one snapshot per piece, of about `_PIECE_BYTES` each, in key order."""
    entries: list[FragmentEntry] = []
    size = 0
    for overlapping in overlapping_fragments(snapshot):
        entries += overlapping
        size += sum(entry.raw_bytes for entry in overlapping)
        if size >= _PIECE_BYTES:
            yield of_fragments(snapshot, entries)
            entries, size = [], 0
    if entries:
        yield of_fragments(snapshot, entries)


def of_fragments(snapshot: Snapshot, entries: Sequence[FragmentEntry]) -> Snapshot:
    """Returns the snapshot with only these fragments."""
    fragments = FragmentMap(EntryTable.of(list(entries)))
    return replace(snapshot, fragments=fragments, leases={}, quarantine={}, suspects={})
