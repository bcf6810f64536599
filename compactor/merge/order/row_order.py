"""Stores the row order, which is computed once from the sort columns and replayed by every other column.

For each output row group it has how many rows each input contributes, and the input of each row. Rows of one
input keep their order, so nothing else is needed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.merge_stages import ROW_ORDER
from compactor.resources.record_buffer import RecordBuffer
from compactor.rows.flags import COUNTS, KEPT, Flags
from lsm_fragment.gather.origins import Origins
from lsm_fragment.native.gather import origins as native

_HEAD: Final = struct.Struct("<IIIBBxx")
"""Number of rows, of their runs, of inputs, form, and whether flags follow the counts."""
_LENGTH: Final = np.dtype(np.uint32)


class _Form(IntEnum):
    ROWS = 0
    """The input of each row."""
    RUNS = 1
    """Inputs and lengths of runs."""
    COPIED = 2


class GroupOrder(Struct, frozen=True, kw_only=True):
    """The order of one output row group, as read from a record."""

    inputs: npt.NDArray[np.uint16]
    """The contributing inputs, ascending."""
    counts: npt.NDArray[np.uint32]
    """Number of rows of each input; the sum is `rows`."""
    rows: int
    """Number of rows taken from the inputs; with flags, fewer may be written."""
    _form: _Form
    _record: bytes
    _data_at: int
    _runs: int
    flags: Flags | None = None
    """The fate of each row in output order (`compactor.rows.flags`); None if all are written."""

    @property
    def copied(self) -> int | None:
        """Number of the row group in its only input, if it is copied; otherwise None."""
        if self._form is not _Form.COPIED:
            return None
        return int.from_bytes(self._record[self._data_at :], "little")

    def origins(self) -> Origins:
        """Returns the sources of the output rows: the places of their inputs in `inputs`."""
        place, counts = _place_type(len(self.inputs)), self.counts.astype(np.int64)
        if self._form is _Form.COPIED:
            return Origins(np.zeros(self.rows, dtype=np.uint16), counts, self._runs)
        if self._form is _Form.ROWS:
            places = np.frombuffer(self._record, place, self.rows, self._data_at)
            return Origins(places.astype(np.uint16), counts, self._runs)
        places = np.frombuffer(self._record, place, self._runs, self._data_at)
        lengths = np.frombuffer(self._record, _LENGTH, self._runs, self._data_at + places.nbytes)
        return Origins(np.repeat(places.astype(np.uint16), lengths), counts, self._runs)


class RowOrder:
    """The orders of all row groups, in a record buffer in output order, as runs where that is smaller."""

    def __init__(self, budget: MemoryBudget, disk: LocalDisk) -> None:
        self._records = RecordBuffer(budget, ROW_ORDER, disk)
        self.copied_rows = 0
        self.dropped: dict[str, int] = {}
        """Number of rows in order that are not written, by reason."""

    def __len__(self) -> int:
        return len(self._records)

    @property
    def size_bytes(self) -> int:
        """Bytes of all records, in memory and on disk."""
        return self._records.size_bytes

    def append(
        self, inputs: npt.NDArray[np.integer[Any]], origins: Origins, flags: Flags | None = None
    ) -> None:
        """Appends a row group: the inputs that contribute, ascending, the place of each row's input among
        them, and the fate of the rows."""
        form, data = _stored(origins, _place_type(len(inputs)))
        self._record(len(origins), origins.runs, inputs, origins.counts, form, data, flags)

    def note_dropped(self, dropped: Mapping[str, int]) -> None:
        """Counts rows that are not written, by reason."""
        for reason, rows in dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + rows

    def append_copied(self, source: int, rows: int, group: int) -> None:
        """Appends a row group that is copied from an input."""
        self.copied_rows += rows
        number = group.to_bytes(4, "little")
        self._record(rows, 1, np.array([source]), np.array([rows]), _Form.COPIED, number)

    def _record(
        self,
        rows: int,
        runs: int,
        inputs: npt.NDArray[np.integer[Any]],
        counts: npt.NDArray[np.integer[Any]],
        form: _Form,
        data: bytes,
        flags: Flags | None = None,
    ) -> None:
        self._records.append(
            b"".join(
                (
                    _HEAD.pack(rows, runs, len(inputs), form, flags is not None),
                    inputs.astype(np.uint16).tobytes(),
                    counts.astype(np.uint32).tobytes(),
                    b"" if flags is None else _packed(flags),
                    data,
                )
            )
        )

    def groups(self) -> Iterator[GroupOrder]:
        """Yields all row groups in output order; may be called many times."""
        for record in self._records:
            rows, runs, count, form, has_flags = _HEAD.unpack_from(record)
            counts_at = _HEAD.size + 2 * count
            flags_at = counts_at + 4 * count
            data_at = flags_at + (2 * -(-rows // 8) if has_flags else 0)
            yield GroupOrder(
                inputs=np.frombuffer(record, np.uint16, count, _HEAD.size),
                counts=np.frombuffer(record[counts_at:flags_at], np.uint32),
                rows=rows,
                _form=_Form(form),
                _record=record,
                _data_at=data_at,
                _runs=runs,
                flags=_unpacked(record[flags_at:data_at], rows) if has_flags else None,
            )

    def spill(self) -> int:
        """Moves what is in memory to disk. Returns how many bytes that frees."""
        return self._records.spill()

    def close(self) -> None:
        self._records.close()


def _stored(origins: Origins, place: type[np.uint8] | type[np.uint16]) -> tuple[_Form, bytes]:
    """Returns the form of an order and its bytes."""
    size = np.dtype(place).itemsize
    if origins.runs * (size + _LENGTH.itemsize) < len(origins) * size:
        sources, lengths = np.empty(origins.runs, np.uint16), np.empty(origins.runs, _LENGTH)
        native.divide(origins.sources, sources, lengths)
        return _Form.RUNS, sources.astype(place).tobytes() + lengths.tobytes()
    return _Form.ROWS, origins.sources.astype(place).tobytes()


def _place_type(inputs: int) -> type[np.uint8] | type[np.uint16]:
    return np.uint8 if inputs <= 1 << 8 else np.uint16


def _packed(flags: Flags) -> bytes:
    """Packs flags as two bits per row, one bit plane after the other."""
    return b"".join(np.packbits(flags & bit).tobytes() for bit in (KEPT, COUNTS))


def _unpacked(data: bytes, rows: int) -> Flags:
    planes = np.unpackbits(np.frombuffer(data, np.uint8).reshape(2, -1), axis=1, count=rows)
    flags: Flags = planes[0] * np.uint8(KEPT) | planes[1] * np.uint8(COUNTS)
    return flags
