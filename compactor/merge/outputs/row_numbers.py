"""Sums up the row hash: one number per row, to which every column adds (SPEC section 7)."""

from __future__ import annotations

import numpy as np

from compactor.resources.record_buffer import NumberArrays
from compactor.rows.flags import KEPT, Flags
from lsm_fragment.arrays.hashing import combine, fold_rows


def hash_of_all(numbers: NumberArrays) -> int:
    """Returns the hash of all rows."""
    return combine(*(fold_rows(numbers.get(index)) for index in range(len(numbers))))


def hash_of(numbers: NumberArrays, index: int, flags: Flags | None = None) -> int:
    """Returns a row group's hash: of all its rows, or of the kept ones."""
    of_rows = numbers.get(index)
    return fold_rows(of_rows if flags is None else of_rows[(flags & KEPT).astype(np.bool_)])
