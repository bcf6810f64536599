"""Deletions: which rows of a fragment are deleted.

One object holds the deletions of one commit: for each fragment that has deleted rows, a block of the fragment
format with a bit for each row. A fragment is never changed. The log names the deleted rows' bits; readers
leave those rows out, and the next compaction of the fragment does not write them.
"""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from msgspec import structs

from compactor.common.counts import counted
from compactor.errors import DamagedInputError
from compactor.stores.base import Store, create_own
from compactor.table.damage import RESTORE
from compactor.table.entry import Deletion, FragmentEntry
from compactor.table.missing import missing_explained
from lsm_fragment import compute as pc
from lsm_fragment.arrays.buffers import boolean_array
from lsm_fragment.blocks.layout import BlockKind, checksum64
from lsm_fragment.container.block_reader import BlockReader
from lsm_fragment.container.chunk import make_chunk
from lsm_fragment.errors import FormatError

Deleted: TypeAlias = pa.BooleanArray
"""For each row of a fragment, whether it is deleted; shape (rows,), without nulls."""

_LEVEL: Final = 3
_MAX_BESIDE_BITS: Final = 1024
"""Refuse a block with more bytes than these beside a bit for each row."""


def write_deletions(
    store: Store, key: str, deleted: Iterable[tuple[FragmentEntry, Deleted]]
) -> list[FragmentEntry]:
    """Writes one object. Returns the entries with their deletions, invisible until they are committed."""
    entries, blocks, offset = [], [], 0
    for entry, bits in deleted:
        block = make_chunk(bits, level=_LEVEL).block(BlockKind.DATA)
        deletion = Deletion(key, offset, len(block), bits.true_count, checksum64(block))
        entries.append((entry, deletion))
        blocks.append(block)
        offset += len(block)
    create_own(store, key, b"".join(blocks))
    return [structs.replace(entry, deletion=deletion) for entry, deletion in entries]


def read_deletion(store: Store, entry: FragmentEntry) -> Deleted | None:
    """Returns the deleted rows of a fragment, if any. Raises `DamagedInputError`,
    `FragmentMissingError`, `StoreError`."""
    deletion = entry.deletion
    if deletion is None:
        return None
    name = f"{store.url}/{deletion.key}"
    fragment = f"{store.url}/{entry.key}"
    if deletion.length > entry.rows // 8 + _MAX_BESIDE_BITS:
        raise DamagedInputError(
            f"{name}: {deletion.length:,} bytes for the bits of {counted(entry.rows, 'row')}{RESTORE}",
            name=fragment,
        )
    with missing_explained(store, deletion.key, entry.key):
        data = store.read_range(deletion.key, deletion.offset, deletion.length)
    try:
        block = BlockReader(BytesIO(data), name, offset=deletion.offset).read_block()
        if block.header.rows != entry.rows:
            raise DamagedInputError(
                f"{name}: it has bits for {counted(block.header.rows, 'row')}, but {entry.key} has "
                f"{entry.rows:,}{RESTORE}",
                name=fragment,
            )
        if block.header.raw_bytes > entry.rows // 8 + _MAX_BESIDE_BITS:
            raise DamagedInputError(
                f"{name}: bits that unpack to {block.header.raw_bytes:,} bytes for "
                f"{counted(entry.rows, 'row')}{RESTORE}",
                name=fragment,
            )
        bits = block.decode(pa.bool_())
    except FormatError as error:
        raise DamagedInputError(
            f"{error}; the deleted rows of {entry.key} are unknown{RESTORE}", name=fragment
        ) from error
    if bits.null_count or bits.true_count != deletion.rows or checksum64(data) != deletion.hash:
        raise DamagedInputError(
            f"{name}: it has other deleted rows of {entry.key} than those of which the log has the hash"
            f"{RESTORE}",
            name=fragment,
        )
    return bits


def not_only_in(deleted: Deleted | None, other: Deleted | None, rows: int) -> Deleted:
    """Returns the rows of a fragment except those that are live in one version and deleted in the other.

    deleted, other: the deleted rows of the one version and of the other; None if there are none.
    """
    if other is None:
        return boolean_array(np.ones(rows, dtype=np.bool_))
    kept = pc.invert(other)
    return kept if deleted is None else pc.or_(deleted, kept)
