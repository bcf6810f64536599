"""Maps deleted rows through the row order of a merge: from inputs to outputs, and back. Pure."""

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


def rows_of_deleted(
    orders: Iterable[GroupOrder],
    deleted: Iterable[pa.BooleanArray],
    input_rows: Sequence[int],
) -> list[pa.BooleanArray]:
    """Returns for each input a bit per row that went into the merge: whether it is deleted by its outputs.

    It is the way back of `places_of_deleted`: a deleted row takes all rows of its key along if rows of a key
    were merged. Rows of keys that have no row in the outputs stay.

    orders: as for `places_of_deleted`. deleted: for each output, in order, a bit per row. input_rows: the
    rows of each input that went into the merge; takes a byte for each. Raises as `places_of_deleted`.
    """
    found: list[_Bits] = [np.zeros(rows, dtype=np.bool_) for rows in input_rows]
    taken = [0] * len(input_rows)
    written = _Taken(bits.to_numpy(zero_copy_only=False) for bits in deleted)
    for order in orders:
        bits = _taken_along(order, written)
        sources = order.origins().sources if bits.any() else None
        for place, (number, count) in enumerate(
            zip(order.inputs.tolist(), order.counts.tolist(), strict=True)
        ):
            first, taken[number] = taken[number], taken[number] + count
            if taken[number] > input_rows[number]:
                raise OrderMismatchError("the order has more rows than an input")
            if sources is not None:
                found[number][first : taken[number]] = bits[sources == place]
    if written.has_more() or taken != list(input_rows):
        raise OrderMismatchError("the order does not have all rows of the inputs and the outputs")
    return [pa.array(bits) for bits in found]


def _taken_along(order: GroupOrder, written: _Taken) -> _Bits:
    """Returns for each row of a row group whether it, or a row of its merged key, is deleted."""
    if order.flags is None:
        return written.pull(order.rows)
    kept = (order.flags & KEPT).astype(np.bool_)
    bits = np.zeros(order.rows, dtype=np.bool_)
    bits[kept] = written.pull(int(kept.sum()))
    if not bits.any():
        return bits
    starts = np.flatnonzero(order.flags & STARTS)
    some = np.logical_or.reduceat(bits, starts)
    if (some != np.logical_and.reduceat(bits | ~kept, starts) & some).any():
        raise PartOfKeyError("a delete has only some of the rows of a key")
    along: _Bits = np.repeat(some, np.diff(starts, append=order.rows))
    return along


def _check_whole_keys(bits: _Bits, flags: Flags) -> None:
    starts = np.flatnonzero(flags & STARTS)
    some = np.logical_or.reduceat(bits, starts)
    if (some != np.logical_and.reduceat(bits, starts)).any():
        raise PartOfKeyError("a delete has only some of the rows that were merged into one")


class _Taken:
    """Bits in pieces, of which any number is pulled at a time."""

    def __init__(self, pieces: Iterator[_Bits]) -> None:
        self._pieces = pieces
        self._rest: _Bits = np.zeros(0, dtype=np.bool_)

    def pull(self, count: int) -> _Bits:
        """Raises `OrderMismatchError` if there are fewer."""
        parts, missing = [self._rest[:0]], count
        while missing:
            if not len(self._rest):
                piece = next(self._pieces, None)
                if piece is None:
                    raise OrderMismatchError(
                        "the order and the outputs have different numbers of rows"
                    )
                self._rest = piece
            part, self._rest = self._rest[:missing], self._rest[missing:]
            parts.append(part)
            missing -= len(part)
        return np.concatenate(parts)

    def has_more(self) -> bool:
        return bool(len(self._rest) or any(map(len, self._pieces)))


def _cut(pieces: Iterator[_Bits], lengths: Sequence[int]) -> Iterator[_Bits]:
    """Yields the same bits in arrays of these lengths. Raises `OrderMismatchError` unless they add up."""
    taken = _Taken(pieces)
    for length in lengths:
        yield taken.pull(length)
    if taken.has_more():
        raise OrderMismatchError("the order has more rows than the outputs")
