"""Checks a merge: rows and row hashes of the inputs equal those of the outputs and of the rows left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compactor.common.counts import counted
from compactor.merge.context import MergeContext
from compactor.merge.errors import MergeCheckError
from compactor.merge.order.row_order import GroupOrder
from compactor.merge.outputs.row_numbers import hash_of
from compactor.merge.outputs.sinks import GroupNumbers, OutputFragment
from compactor.rows.flags import KEPT
from lsm_fragment.arrays.hashing import combine


def check_rows(
    context: MergeContext, ends: Sequence[tuple[int, int]], row_hashes: Sequence[Sequence[int]]
) -> None:
    """Raises `MergeCheckError` unless rows and row hashes of the inputs equal those of the outputs and of the
    rows that were left out.

    ends: rows and row hash of each input, by its footer. row_hashes: by output and row group.
    """
    rows_in = sum(rows for rows, _ in ends)
    rows_out = sum(output.emitter.rows for output in context.outputs)
    rows_out += sum(context.order.dropped.values())
    hash_in = combine(*(row_hash for _, row_hash in ends))
    hash_out = combine(*(value for hashes in row_hashes for value in hashes))
    if context.order.dropped:
        # Hashes all rows taken: rows that are not written went through the columns as well.
        orders = context.order.groups()
        hash_out = combine(
            *(
                _hash_taken(context, output, group, next(orders))
                for output in context.outputs
                for group in output.row_groups
            )
        )
    if (rows_in, hash_in) != (rows_out, hash_out):
        raise MergeCheckError(
            f"the merge of {counted(len(ends), 'fragment')} took {counted(rows_in, 'row')} of hash "
            f"{hash_in:016x} and gave {counted(rows_out, 'row')} of hash {hash_out:016x}; its "
            "outputs were dropped, the inputs are untouched"
        )


def row_hashes_of(context: MergeContext) -> list[list[int]]:
    """Returns for each output the hashes of its written row groups."""
    orders = context.order.groups()
    return [_row_hashes(context, output, orders) for output in context.outputs]


def _row_hashes(
    context: MergeContext, output: OutputFragment, orders: Iterator[GroupOrder]
) -> list[int]:
    """Returns the hashes of an output's row groups, except those without rows."""
    hashes = (_row_hash(context, output, group, next(orders)) for group in output.row_groups)
    return [value for value in hashes if value is not None]


def _row_hash(
    context: MergeContext, output: OutputFragment, group: GroupNumbers | None, order: GroupOrder
) -> int | None:
    """Returns the hash of a row group as it is written; None if none of its rows is written."""
    if group is None:
        assert order.copied is not None
        return context.copied[int(order.inputs[0])].row_hash(order.copied)
    if group.folded is not None:
        return hash_of(output.folded, group.folded)
    if order.flags is not None and not (order.flags & KEPT).any():
        return None
    return hash_of(output.row_numbers, group.number, order.flags)


def _hash_taken(
    context: MergeContext, output: OutputFragment, group: GroupNumbers | None, order: GroupOrder
) -> int:
    """Returns the hash of a row group as it was taken."""
    if group is None:
        assert order.copied is not None
        return context.copied[int(order.inputs[0])].row_hash(order.copied)
    return hash_of(output.row_numbers, group.number)
