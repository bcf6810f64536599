"""Maps deleted rows of a merge's inputs through the row order to the rows of its outputs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.merge.order.row_order import GroupOrder
from compactor.rows.flags import COUNTS, KEPT, Flags

STARTS: Final = COUNTS
"""The second flag of a row in an order that is only mapped: the row is the first of its key.

Nothing is folded by such an order, so the place of the flag is free.
"""
_Bits = npt.NDArray[np.bool_]


class PartOfKeyError(Exception):
    """Only some of the rows that were merged into one row are deleted, so that row has another value now."""


class OrderMismatchError(Exception):
    """The order has other rows than the inputs or the outputs."""


def places_of_deleted(
    orders: Iterable[GroupOrder],
    deleted: Mapping[int, pa.BooleanArray],
    output_rows: Sequence[int],
) -> Iterator[pa.BooleanArray]:
    """Yields for each output, in order, a bit per row: whether the row is deleted.

    Rows that are not written have no place, so their bits go nowhere.

    orders: all row groups; a group with flags states by `STARTS` where keys begin, and has whole keys.
    deleted: by input, a bit for each row that went into the merge. output_rows: the rows of each output.
    Raises `PartOfKeyError` where a key is deleted in part; `OrderMismatchError` for rows that do not add up.
    """
    taken = dict.fromkeys(deleted, 0)
    written = (_written(order, deleted, taken) for order in orders)
    for bits in _cut(written, output_rows):
        yield pa.array(bits)
    if any(taken[number] != len(bits) for number, bits in deleted.items()):
        raise OrderMismatchError("the order does not have all rows of the inputs")


def _written(
    order: GroupOrder, deleted: Mapping[int, pa.BooleanArray], taken: dict[int, int]
) -> _Bits:
    """Returns for each written row of a row group whether it is deleted.

    taken: the rows of each input that earlier groups had; is moved on.
    """
    bits = np.zeros(order.rows, dtype=np.bool_)
    sources: npt.NDArray[np.uint16] | None = None
    for place, (number, count) in enumerate(
        zip(order.inputs.tolist(), order.counts.tolist(), strict=True)
    ):
        if number not in deleted:
            continue
        part = deleted[number].slice(taken[number], count)
        if len(part) != count:
            raise OrderMismatchError("the order has more rows than an input")
        taken[number] += count
        if part.true_count:
            sources = order.origins().sources if sources is None else sources
            bits[np.flatnonzero(sources == place)[part.to_numpy(zero_copy_only=False)]] = True
    if order.flags is None:
        return bits
    if sources is not None:
        _check_whole_keys(bits, order.flags)
    written: _Bits = bits[(order.flags & KEPT).astype(np.bool_)]
    return written


def _check_whole_keys(bits: _Bits, flags: Flags) -> None:
    starts = np.flatnonzero(flags & STARTS)
    some = np.logical_or.reduceat(bits, starts)
    if (some != np.logical_and.reduceat(bits, starts)).any():
        raise PartOfKeyError("a delete has only some of the rows that were merged into one")


def _cut(pieces: Iterator[_Bits], lengths: Sequence[int]) -> Iterator[_Bits]:
    """Yields the same bits in arrays of these lengths. Raises `OrderMismatchError` unless they add up."""
    rest: _Bits = np.zeros(0, dtype=np.bool_)
    for length in lengths:
        parts, missing = [rest[:0]], length
        while missing:
            if not len(rest):
                piece = next(pieces, None)
                if piece is None:
                    raise OrderMismatchError("the order has fewer rows than the outputs")
                rest = piece
            part, rest = rest[:missing], rest[missing:]
            parts.append(part)
            missing -= len(part)
        yield np.concatenate(parts)
    if len(rest) or any(map(len, pieces)):
        raise OrderMismatchError("the order has more rows than the outputs")
