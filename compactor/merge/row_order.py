"""Stores the row order, which is computed once from the sort columns and replayed by every other column.

For each output row group it has how many rows each input contributes, and how these rows, laid end to end in
input order, are permuted. Rows of one input keep their order, so nothing else is needed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from compactor.resources.tape import Tape
from compactor.rows.flags import COUNTS, KEPT, Flags

_MIN_RUN: Final = 4
"""Average run length from which runs take less room than one position per row."""
_HEAD: Final = struct.Struct("<IIBBxx")
"""Number of rows, number of inputs, form, and whether flags follow the counts."""


class _Form(IntEnum):
    AS_THEY_LIE = 0
    POSITIONS = 1
    RUNS = 2
    PASSED = 3


@dataclass(frozen=True, slots=True)
class GroupOrder:
    """The order of one output row group, as read from a record."""

    inputs: npt.NDArray[np.uint16]
    """The contributing inputs, ascending."""
    counts: npt.NDArray[np.uint32]
    """Number of rows of each input; the sum is `rows`."""
    rows: int
    """Number of rows taken from the inputs; with flags, fewer may be written."""
    _form: _Form
    _data: bytes
    flags: Flags | None = None
    """What becomes of each row in output order (`compactor.rows.flags`); None if all are written."""

    @property
    def copied(self) -> int | None:
        """Number of the row group in its only input, if it is copied; otherwise None."""
        return int.from_bytes(self._data, "little") if self._form is _Form.PASSED else None

    def positions(self) -> npt.NDArray[Any] | None:
        """Returns each output row's position among the inputs' rows laid end to end; None if the order is the
        same."""
        match self._form:
            case _Form.AS_THEY_LIE | _Form.PASSED:
                return None
            case _Form.POSITIONS:
                return np.frombuffer(self._data, dtype=_narrow(self.rows))
            case _Form.RUNS:
                both = np.frombuffer(self._data, dtype=_narrow(self.rows)).astype(np.int64)
                starts, positions = both[: len(both) // 2], both[len(both) // 2 :]
                lengths = np.diff(np.append(starts, self.rows))
                return np.repeat(positions - starts, lengths) + np.arange(self.rows)

    def origins(self) -> npt.NDArray[np.intp]:
        """Returns the input of each output row. Shape (rows,)."""
        as_they_lie = np.repeat(self.inputs.astype(np.intp), self.counts)
        positions = self.positions()
        return as_they_lie if positions is None else as_they_lie[positions]


def positions_by_input(origins: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """Returns each row's position among the inputs' rows laid end to end. origins: the rows' inputs."""
    by_input = np.argsort(origins, kind="stable")
    positions = np.empty(len(origins), dtype=np.int64)
    positions[by_input] = np.arange(len(origins))
    return positions


class RowOrder:
    """The orders of all row groups, on a tape, in output order. Positions are runs where that is smaller."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.copied_rows = 0

    def __len__(self) -> int:
        return len(self._tape)

    def append(self, origins: npt.NDArray[np.uint16], flags: Flags | None = None) -> None:
        """Appends a row group: the input of each row in output order, and what becomes of the rows."""
        rows = len(origins)
        per_input = np.bincount(origins)
        inputs = np.flatnonzero(per_input)
        form, data = self._form(origins) if len(inputs) > 1 else (_Form.AS_THEY_LIE, b"")
        self._record(rows, inputs, per_input[inputs], form, data, flags)

    def append_copied(self, source: int, rows: int, group: int) -> None:
        """Appends a row group that is copied from an input."""
        self.copied_rows += rows
        self._record(
            rows, np.array([source]), np.array([rows]), _Form.PASSED, group.to_bytes(4, "little")
        )

    def _record(
        self,
        rows: int,
        inputs: npt.NDArray[np.integer[Any]],
        counts: npt.NDArray[np.integer[Any]],
        form: _Form,
        data: bytes,
        flags: Flags | None = None,
    ) -> None:
        self._tape.append(
            b"".join(
                (
                    _HEAD.pack(rows, len(inputs), form, flags is not None),
                    inputs.astype(np.uint16).tobytes(),
                    counts.astype(np.uint32).tobytes(),
                    b"" if flags is None else _packed(flags),
                    data,
                )
            )
        )

    def groups(self) -> Iterator[GroupOrder]:
        """Yields all row groups in output order; may be called many times."""
        for record in self._tape:
            rows, count, form, has_flags = _HEAD.unpack_from(record)
            counts_at = _HEAD.size + 2 * count
            flags_at = counts_at + 4 * count
            data_at = flags_at + (2 * -(-rows // 8) if has_flags else 0)
            yield GroupOrder(
                np.frombuffer(record, np.uint16, count, _HEAD.size),
                np.frombuffer(record[counts_at:flags_at], np.uint32),
                rows,
                _Form(form),
                record[data_at:],
                _unpacked(record[flags_at:data_at], rows) if has_flags else None,
            )

    def _form(self, origins: npt.NDArray[np.uint16]) -> tuple[_Form, bytes]:
        rows = len(origins)
        positions = positions_by_input(origins)
        starts = np.concatenate(([0], np.flatnonzero(np.diff(positions) != 1) + 1))
        if len(starts) * _MIN_RUN <= rows:
            both = np.concatenate((starts, positions[starts]))
            return _Form.RUNS, both.astype(_narrow(rows)).tobytes()
        return _Form.POSITIONS, positions.astype(_narrow(rows)).tobytes()


def _packed(flags: Flags) -> bytes:
    """Packs flags as two bits per row, one bit plane after the other."""
    return b"".join(np.packbits(flags & bit).tobytes() for bit in (KEPT, COUNTS))


def _unpacked(data: bytes, rows: int) -> Flags:
    planes = np.unpackbits(np.frombuffer(data, np.uint8).reshape(2, -1), axis=1, count=rows)
    flags: Flags = planes[0] * np.uint8(KEPT) | planes[1] * np.uint8(COUNTS)
    return flags


def _narrow(rows: int) -> type[Any]:
    return np.uint16 if rows <= 1 << 16 else np.uint32
