"""Carries rows that were deleted during a compaction to the deletions of its outputs.

A delete leaves the leases of compactions alone. When a compaction is to be committed, its inputs may have
more deleted rows than the merge has left out. Only then the row order is made again and kept until the
commit. The rows' places in the outputs are written as an object of deletions, which is committed with the
outputs. If another delete comes before the commit, its rows alone are carried, by the order that is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from msgspec import structs

from compactor.common.clock import Ids
from compactor.compaction.compaction import Compaction
from compactor.compaction.inputs import input_fragment
from compactor.compaction.prepared import prepare_merge
from compactor.merge.key_order import KeyOrder
from compactor.merge.order.places import (
    OrderMismatchError,
    PartOfKeyError,
    places_of_deleted,
)
from compactor.merge.order.row_order import GroupOrder
from compactor.resources.reservation import Reservation
from compactor.stores.base import Store
from compactor.stores.local import is_on_local_disk
from compactor.table.deletions import Deleted, read_deletion, write_deletions
from compactor.table.entry import Deletion, FragmentEntry
from compactor.table.object_names import deletions_key
from compactor.table.snapshot import Snapshot
from lsm_fragment import compute as pc
from lsm_fragment.arrays.moves import keep

ROWS_BETWEEN_SIGNS: Final = 1 << 20
"""Give a sign of life after this many rows, which takes well under a second."""

_BITS_AT_A_TIME: Final = 4
"""Bits for each row: those the merge has seen, those carried, those of now, and those of outputs."""


class CannotCarryError(Exception):
    """The deleted rows have no places that are known, so that the compaction is void. It says why."""


class KeptOrder(Protocol):
    """The row order of one compaction, until it is closed."""

    def groups(self) -> Iterator[GroupOrder]: ...

    def reserve(self, size: int) -> Reservation:
        """Reserves memory for bits of rows beside the order."""
        ...

    def close(self) -> None: ...


OrderOf = Callable[[Compaction, Store, Callable[[int], None]], KeptOrder]
"""Makes the order of a compaction; the function is told the rows of each batch on the way."""


def order_of_keys(
    compaction: Compaction, store: Store, on_rows: Callable[[int], None]
) -> KeptOrder:
    """Makes the order from the sort columns of the inputs."""
    merge = prepare_merge(compaction, None, are_local=is_on_local_disk(store))
    inputs = [input_fragment(entry, store, store) for entry in compaction.spec.inputs]
    return KeyOrder(inputs, merge.settings, merge.plan, on_rows)


def has_only_more_deleted(now: FragmentEntry | None, before: FragmentEntry) -> bool:
    """Says whether a fragment is as it was, apart from more deleted rows."""
    if now is None or now == before:
        return now is not None
    is_same = structs.replace(now, deletion=before.deletion) == before
    return is_same and now.deleted_rows > before.deleted_rows


def without_seen(bits: Deleted, seen: Deleted | None, key: str) -> Deleted:
    """Returns the deleted rows of a fragment in an order that leaves out the rows deleted before.

    bits: all deleted rows. seen: those deleted before. key: of the fragment. Raises `CannotCarryError`.
    """
    if seen is None:
        return bits
    if pc.and_not(seen, bits).true_count:
        raise CannotCarryError(f"deleted rows of {key} have come back")
    return keep(bits, pc.invert(seen))


class Carrying:
    """The deleted rows of one compaction's inputs and outputs, as far as they are carried."""

    def __init__(
        self,
        store: Store,
        compaction: Compaction,
        outputs: Sequence[FragmentEntry],
        *,
        ids: Ids,
        order_of: OrderOf,
        on_sign_of_life: Callable[[], None],
    ) -> None:
        """outputs: the entries that the attempt returned. on_sign_of_life: is called now and then."""
        self._store = store
        self._compaction = compaction
        self.attempted = outputs
        """The entries that the attempt returned."""
        self._ids = ids
        self._order_of = order_of
        self._on_sign_of_life = on_sign_of_life
        self._rows = 0
        self._order: KeptOrder | None = None
        self._memory: Reservation | None = None
        self._known: dict[str, Deletion | None] = {
            entry.key: entry.deletion for entry in compaction.spec.inputs
        }
        """The deletions of the inputs that `outputs` account for."""
        self._seen: dict[int, Deleted | None] = {}
        """The rows that the merge has left out, for inputs with rows deleted since."""
        self._carried: dict[int, Deleted] = {}
        """The rows of the order that are carried, for the same inputs."""
        self._bits: list[Deleted] = []
        """The deleted rows of each output; empty before the first."""
        self.outputs: Sequence[FragmentEntry] = outputs
        """The outputs with the deletions that were carried."""

    def is_done(self, snapshot: Snapshot) -> bool:
        """Says whether the outputs account for all deleted rows of the snapshot. All inputs are live."""
        return not self._changed(snapshot)

    def carry(self, snapshot: Snapshot) -> None:
        """Carries the rows deleted since the last time, and writes the outputs' deletions to the store.

        Raises `CannotCarryError`; `FormatError` and `CompactorError` where inputs can't be read, or where
        memory or local disk does not suffice.
        """
        changed = self._changed(snapshot)
        try:
            self._add(self._newly_deleted(changed))
        except PartOfKeyError as error:
            raise CannotCarryError(str(error)) from error
        found = [
            (output, bits)
            for output, bits in zip(self.attempted, self._bits, strict=True)
            if bits.true_count
        ]
        entries: Iterable[FragmentEntry] = ()
        if found:
            compaction = self._compaction
            attempt = f"{compaction.compaction_id}-{self._ids()}"
            entries = write_deletions(
                self._store, deletions_key(compaction.base_version, attempt), found
            )
        with_deletions = {entry.key: entry for entry in entries}
        self.outputs = [with_deletions.get(entry.key, entry) for entry in self.attempted]
        # This comes last: if the store could not be reached, the same rows are carried again.
        self._known |= {entry.key: entry.deletion for entry in changed.values()}

    def close(self) -> None:
        if self._memory is not None:
            self._memory.free()
        if self._order is not None:
            self._order.close()
        self._order = None

    def _changed(self, snapshot: Snapshot) -> dict[int, FragmentEntry]:
        """Returns the inputs with other deletions than are known, by their number."""
        now = (snapshot.fragments[entry.key] for entry in self._compaction.spec.inputs)
        return {n: entry for n, entry in enumerate(now) if entry.deletion != self._known[entry.key]}

    def _newly_deleted(self, changed: Mapping[int, FragmentEntry]) -> dict[int, Deleted]:
        """Returns for each of these inputs a bit per row of the order: those deleted since the last time."""
        found = {}
        for number, now in changed.items():
            if number not in self._seen:
                merged = self._compaction.spec.inputs[number]
                self._seen[number] = read_deletion(self._store, merged)
            bits, seen = read_deletion(self._store, now), self._seen[number]
            assert bits is not None, "what has only more deleted rows has some"
            bits = without_seen(bits, seen, now.key)
            carried = self._carried.get(number)
            found[number] = bits if carried is None else pc.and_not(bits, carried)
        return found

    def _add(self, deleted: Mapping[int, Deleted]) -> None:
        """Adds deleted rows of the inputs to those of the outputs."""
        if not deleted:
            return
        if self._order is None:
            self._order = self._order_of(self._compaction, self._store, self._on_rows)
            rows = self._compaction.spec.rows + sum(entry.rows for entry in self.attempted)
            self._memory = self._order.reserve(_BITS_AT_A_TIME * rows // 8)
        rows_of = [entry.rows for entry in self.attempted]
        try:
            places = places_of_deleted(self._order.groups(), deleted, rows_of)
            before = self._bits or [None] * len(rows_of)
            self._bits = [
                bits if known is None else pc.or_(bits, known)
                for bits, known in zip(places, before, strict=True)
            ]
        except OrderMismatchError as error:
            raise CannotCarryError(f"{error}; this is a defect") from error
        for number, bits in deleted.items():
            before_of_input = self._carried.get(number)
            self._carried[number] = (
                bits if before_of_input is None else pc.or_(bits, before_of_input)
            )

    def _on_rows(self, rows: int) -> None:
        self._rows += rows
        if self._rows >= ROWS_BETWEEN_SIGNS:
            self._rows = 0
            self._on_sign_of_life()
