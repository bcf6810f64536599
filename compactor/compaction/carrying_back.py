"""Carries rows that were deleted from the outputs of a compaction back to its inputs, for an undo.

The row order is made again from the inputs as they were when the compaction was committed. The log does not
say whether the merge had all older rows of its keys (`CompactionSpec.is_bottom`), nor its time to the
millisecond. Both only decide how many of the rows in order are written, one choice always some of the other's
rows. So an order that has as many rows as the outputs has the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import numpy as np
from msgspec.structs import replace

from compactor.compaction.carrying import CannotCarryError, OrderOf, without_seen
from compactor.compaction.compaction import Compaction
from compactor.merge.order.places import OrderMismatchError, PartOfKeyError, rows_of_deleted
from compactor.rows.flags import is_needed
from compactor.stores.base import Store
from compactor.table.deletions import Deleted, read_deletion
from compactor.table.entry import FragmentEntry
from lsm_fragment.arrays.buffers import boolean_array

Outputs = Sequence[tuple[FragmentEntry, FragmentEntry]]
"""For each output, in order, its entry of the compaction's commit, and that of now."""


def carried_back(
    store: Store, compaction: Compaction, outputs: Outputs, *, order_of: OrderOf
) -> list[tuple[FragmentEntry, Deleted]]:
    """Returns the inputs that have rows of the outputs deleted since, with all their deleted rows.

    compaction: its inputs have the rows that were deleted when it was committed.
    Raises `CannotCarryError`; `FormatError` and `CompactorError` where inputs can't be read, or where memory
    or local disk does not suffice.
    """
    since = [_since(store, then, now) for then, now in outputs]
    if not any(bits.true_count for bits in since):
        return []
    table = compaction.metadata
    choices = (False, True) if is_needed(table.rows, table.ttl) else (False,)
    for is_bottom in choices:
        spec = replace(compaction.spec, is_bottom=is_bottom)
        try:
            return _through_order(store, replace(compaction, spec=spec), since, order_of)
        except PartOfKeyError as error:
            raise CannotCarryError(str(error)) from error
        except OrderMismatchError:
            continue
    raise CannotCarryError("the order of its rows can't be made again")


def _since(store: Store, then: FragmentEntry, now: FragmentEntry) -> Deleted:
    """Returns a bit for each row of an output that was live at first: whether it was deleted since."""
    bits = read_deletion(store, now)
    if bits is None or now.deletion == then.deletion:
        return boolean_array(np.zeros(then.live_rows, dtype=np.bool_))
    return without_seen(bits, read_deletion(store, then), now.key)


def _through_order(
    store: Store, compaction: Compaction, since: Sequence[Deleted], order_of: OrderOf
) -> list[tuple[FragmentEntry, Deleted]]:
    inputs = compaction.spec.inputs
    # A byte for each row of the inputs while they are found, and the bits of inputs and outputs.
    size = 2 * compaction.spec.rows + sum(map(len, since)) // 8
    with (
        closing(order_of(compaction, store, lambda _rows: None)) as order,
        order.reserve(size),
    ):
        found = rows_of_deleted(order.groups(), since, [entry.live_rows for entry in inputs])
        return [
            (entry, _with_seen(bits, read_deletion(store, entry)))
            for entry, bits in zip(inputs, found, strict=True)
            if bits.true_count
        ]


def _with_seen(bits: Deleted, seen: Deleted | None) -> Deleted:
    """Returns all deleted rows of a fragment. bits: of the rows that are not deleted by `seen`."""
    if seen is None:
        return bits
    deleted = seen.to_numpy(zero_copy_only=False).copy()
    deleted[~deleted] = bits.to_numpy(zero_copy_only=False)
    return boolean_array(deleted)
