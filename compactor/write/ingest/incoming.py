"""Rows on their way into fragments, with their numbers for the row hash.

The numbers are computed before the rows are sorted; the stored fragments must have the same hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from compactor.errors import DataError
from lsm_fragment.arrays.batches import take_rows
from lsm_fragment.arrays.hashing import U64, add_column, combine, fold_rows
from lsm_fragment.arrays.nested import Places
from lsm_fragment.arrays.storage import to_storage


class IngestCheckError(DataError):
    """A fragment would not contain the incoming rows: it is dropped, and nothing is committed."""


class IncomingRows(NamedTuple):
    batch: pa.RecordBatch
    numbers: U64
    """Sum of the columns' contributions to each row's number (SPEC section 7). Shape (rows,)."""

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> IncomingRows:
        numbers = np.zeros(batch.num_rows, dtype=np.uint64)
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            add_column(name, to_storage(array), numbers)
        return cls(batch, numbers)

    @property
    def rows(self) -> int:
        return int(self.batch.num_rows)

    def slice(self, start: int, rows: int) -> IncomingRows:
        return IncomingRows(self.batch.slice(start, rows), self.numbers[start : start + rows])

    def take(self, places: Places) -> IncomingRows:
        return IncomingRows(take_rows(self.batch, places), self.numbers[places])


def hash_of(rows: Sequence[IncomingRows]) -> int:
    """Returns the row hash of all rows."""
    return combine(*(fold_rows(part.numbers) for part in rows))


def check_stored(path: str, rows: int, expected: int, stored: int) -> None:
    """Raises `IngestCheckError` unless a fragment's row hash is that of the incoming rows."""
    if stored != expected:
        raise IngestCheckError(
            f"{path}: {rows:,} of its rows came with hash {expected:016x} and would be stored with hash "
            f"{stored:016x}: this program or a library has changed a value on the way; nothing was added: "
            "report it, with the file and the output of `compactor --version`"
        )
