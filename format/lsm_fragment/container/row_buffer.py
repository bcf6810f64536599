"""Buffers rows until a row group is full."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

import pyarrow as pa
from msgspec import Struct

from lsm_fragment.arrays.joining import concat_storage
from lsm_fragment.arrays.sizes import rows_of_pieces_within, total_bits


class _Piece(Struct, frozen=True):
    """Consecutive rows of all columns."""

    columns: Mapping[str, pa.Array]
    rows: int
    bits: Mapping[str, int]
    """Size of each column, as `lsm_fragment.arrays.sizes` counts it."""

    def divided(self, rows: int) -> tuple[_Piece, _Piece]:
        """Splits off the first rows."""
        head = _piece_of({name: array.slice(0, rows) for name, array in self.columns.items()})
        rest = {name: array.slice(rows) for name, array in self.columns.items()}
        bits = {name: bits - head.bits[name] for name, bits in self.bits.items()}
        return head, _Piece(rest, self.rows - rows, bits)


def _piece_of(columns: Mapping[str, pa.Array]) -> _Piece:
    rows = len(next(iter(columns.values())))
    return _Piece(columns, rows, {name: total_bits(array) for name, array in columns.items()})


class Pending:
    """Rows that do not fill a row group yet, in the pieces that were appended."""

    def __init__(self) -> None:
        self._pieces: deque[_Piece] = deque()
        self._bits: Counter[str] = Counter()
        self.rows = 0

    def append(self, columns: Mapping[str, pa.Array]) -> None:
        piece = _piece_of(columns)
        self._pieces.append(piece)
        self._bits.update(piece.bits)
        self.rows += piece.rows

    def rows_within(self, max_rows: int, limit_bytes: int) -> int:
        """Returns the maximum number of leading rows, at least 1, within `limit_bytes` in every column."""
        rows = min(self.rows, max_rows)
        for name, bits in self._bits.items():
            if bits // 8 > limit_bytes:
                pieces = (piece.columns[name].slice(0, rows) for piece in self._pieces)
                rows = min(rows, rows_of_pieces_within(pieces, limit_bytes))
        return max(1, rows)

    def take(self, rows: int) -> dict[str, pa.Array]:
        """Removes and returns the first rows, one array per column."""
        taken: list[_Piece] = []
        self.rows -= rows
        while rows:
            piece = self._pieces.popleft()
            if piece.rows > rows:
                piece, rest = piece.divided(rows)
                self._pieces.appendleft(rest)
            self._bits.subtract(piece.bits)
            taken.append(piece)
            rows -= piece.rows
        names = taken[0].columns
        return {name: concat_storage([piece.columns[name] for piece in taken]) for name in names}
