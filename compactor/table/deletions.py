"""Which rows are deleted: one object for each deletion, in it a block of the fragment format for each
fragment that has such rows: a bit for each of its rows.

A fragment is never changed. That some of its rows are gone is said by the log, together with where the bits
are; readers leave those rows out, and the next compaction of the fragment does not write them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from io import BytesIO
from typing import Final, TypeAlias

import pyarrow as pa

from compactor.errors import DamagedInputError
from compactor.stores.base import Store, create_own
from compactor.table.entry import Deletion, FragmentEntry
from compactor.table.overtaken import overtaken_explained
from format.blocks import BlockReader, make_chunk
from format.errors import FormatError
from format.layout import BlockKind

Deleted: TypeAlias = pa.BooleanArray
"""Of each row of a fragment whether it is deleted; shape (rows,), never null."""

_LEVEL: Final = 3
_MOST_BESIDE_BITS: Final = 1024
"""Bytes of a block beside a bit for each row."""
_ADVICE: Final = ": restore the object from a backup"


def write_deletions(
    store: Store, key: str, deleted: Iterable[tuple[FragmentEntry, Deleted]]
) -> list[FragmentEntry]:
    """Writes one object; the entries as they are with it. Nothing is visible before they are committed."""
    entries, blocks, offset = [], [], 0
    for entry, bits in deleted:
        block = make_chunk(bits, level=_LEVEL).block(BlockKind.DATA)
        deletion = Deletion(key, offset, len(block), bits.true_count)
        entries.append((entry, deletion))
        blocks.append(block)
        offset += len(block)
    create_own(store, key, b"".join(blocks))
    return [replace(entry, deletion=deletion) for entry, deletion in entries]


def read_deletion(store: Store, entry: FragmentEntry) -> Deleted | None:
    """Which rows of a fragment are deleted; None if none is. Raises `DamagedInputError`, `StoreError`."""
    deletion = entry.deletion
    if deletion is None:
        return None
    name = f"{store.url}/{deletion.key}"
    fragment = f"{store.url}/{entry.key}"
    if deletion.length > entry.rows // 8 + _MOST_BESIDE_BITS:
        raise DamagedInputError(
            f"{name}: {deletion.length:,} bytes for the bits of {entry.rows:,} rows{_ADVICE}",
            name=fragment,
        )
    with overtaken_explained(store, deletion.key):
        data = store.read_range(deletion.key, deletion.offset, deletion.length)
    try:
        block = BlockReader(BytesIO(data), name, offset=deletion.offset).read_block()
        if block.header.rows != entry.rows:
            raise DamagedInputError(
                f"{name}: its bits are of {block.header.rows} rows, {entry.key} has "
                f"{entry.rows}{_ADVICE}",
                name=fragment,
            )
        if block.header.raw_bytes > entry.rows // 8 + _MOST_BESIDE_BITS:
            raise DamagedInputError(
                f"{name}: bits that unpack to {block.header.raw_bytes:,} bytes for {entry.rows:,} "
                f"rows{_ADVICE}",
                name=fragment,
            )
        bits = block.decode(pa.bool_())
    except FormatError as error:
        raise DamagedInputError(
            f"{error}; the rows deleted of {entry.key} are not known{_ADVICE}", name=fragment
        ) from error
    if bits.null_count or bits.true_count != deletion.rows:
        raise DamagedInputError(
            f"{name}: it has {bits.true_count} rows of {entry.key} deleted, the log "
            f"{deletion.rows}{_ADVICE}",
            name=fragment,
        )
    return bits
