"""Where row groups have to be divided because a column of theirs is too heavy.

Row groups are cut before any column but the sort columns was seen, by the inputs' statistics. Heavy rows
that were scattered over the inputs may become neighbours only in the merged order. The first pass
notices, measures that column and all that follow, and the second pass divides exactly those row groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from compactor.merge.row_groups import OutputGroup
from format.nodes import dictionary_codes, valid_mask
from format.sizes import cumulative_bytes

I64 = npt.NDArray[np.int64]


class Splits:
    """Rows at which row groups are divided, by the number of the row group in output order."""

    def __init__(self) -> None:
        self._rows: dict[int, set[int]] = {}

    def __len__(self) -> int:
        """Row groups that are divided."""
        return len(self._rows)

    def add(self, group: int, running_bytes: I64, limit_bytes: int) -> None:
        """Divides so that no part takes more than the limit, if it has more than one row.

        running_bytes: of the column's first i rows of the row group, for i in 0..rows.
        """
        start, rows = 0, len(running_bytes) - 1
        while True:
            limit = running_bytes[start] + limit_bytes
            stop = max(start + 1, int(np.searchsorted(running_bytes, limit, side="right")) - 1)
            if stop >= rows:
                return
            self._rows.setdefault(group, set()).add(stop)
            start = stop

    def divide(self, number: int, group: OutputGroup) -> Iterator[OutputGroup]:
        """The row group in its parts."""
        stops = [*sorted(self._rows.get(number, ())), group.rows]
        start = 0
        for stop in stops:
            yield OutputGroup(
                [key.slice(start, stop - start) for key in group.keys],
                group.origins[start:stop],
                group.starts_fragment and start == 0,
            )
            start = stop


def row_sizes(pieces: Sequence[pa.Array]) -> I64:
    """Bytes of each row of the pieces, end to end, as if none were dictionary-coded; shape (rows,)."""
    return np.concatenate([np.diff(cumulative_bytes(piece)) for piece in pieces])


def is_coded(pieces: Sequence[pa.Array]) -> bool:
    """Whether the pieces make a dictionary-coded array, see `concat_storage`."""
    coded = [pt.is_dictionary(piece.type) for piece in pieces]
    return any(coded) and all(
        is_one or piece.null_count == len(piece)
        for is_one, piece in zip(coded, pieces, strict=True)
    )


def has_values(pieces: Sequence[pa.Array]) -> bool:
    """Whether anything is not null."""
    return any(piece.null_count < len(piece) for piece in pieces)


def has_one_form(pieces: Sequence[pa.Array]) -> bool:
    """Whether putting the pieces together decodes none of them, so that nothing gets larger."""
    return is_coded(pieces) or not any(pt.is_dictionary(piece.type) for piece in pieces)


def coded_bytes(array: pa.Array) -> int:
    """Bytes of a dictionary-coded array: its codes, and the values that they point to."""
    valid, codes = valid_mask(array), dictionary_codes(array)
    used = np.unique(codes if valid is None else codes[valid])
    values = np.diff(cumulative_bytes(array.dictionary))
    return 4 * len(array) + int(values[used].sum())
