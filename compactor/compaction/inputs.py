"""Describes the inputs of a compaction to a merge, and opens them in the table's store."""

from __future__ import annotations

from compactor.merge.inputs.input_fragment import InputFragment
from compactor.stores.base import Store
from compactor.stores.local import is_on_local_disk
from compactor.stores.resume import ResumingStream
from compactor.table.deletions import read_deletion
from compactor.table.entry import FragmentEntry
from compactor.table.missing import missing_explained


def input_fragment(entry: FragmentEntry, store: Store, plain_store: Store) -> InputFragment:
    """Returns an input.

    store: opens the only GET. plain_store: the same store, for reads that the first may count otherwise.
    """

    def open_source() -> ResumingStream:
        with missing_explained(plain_store, entry.key, entry.key):
            return ResumingStream(store, entry.key)

    is_local = is_on_local_disk(plain_store)
    return InputFragment(
        name=f"{store.url}/{entry.key}",
        source_id=entry.key,
        rows=entry.rows,
        size_bytes=entry.size_bytes,
        row_hash=entry.row_hash,
        open_source=open_source,
        read_again=(lambda: ResumingStream(plain_store, entry.key)) if is_local else None,
        mean_row_bytes=-(
            -max((c.raw for c in entry.columns.values()), default=0) // max(1, entry.rows)
        ),
        peak_row_bytes=entry.peak_row_bytes,
        read_dropped=lambda: read_deletion(plain_store, entry),
    )
