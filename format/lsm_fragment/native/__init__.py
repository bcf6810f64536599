"""Compiled loops (Cython) over the values of one chunk: the only implementation of each.

The rooms are those of the Python modules that call the loops: `arrays`, `keys`, `gather`, `encodings`. All
include the headers here: `words` (memory words, hashes, digits), `nulls` (validity bitmaps), `gil` (releasing
the GIL around long loops).

A loop takes contiguous memory and runs without the GIL. Offsets count from the start of `data` and need not
begin at 0, so sliced arrays are passed unchanged; `data` may be empty. `valid` has a byte for each row, or is
None if no row is null. The caller guarantees that lengths agree; loops check only what their docstrings say.

Machines are little-endian, as the format is.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if sys.byteorder != "little":
    raise ImportError(
        "lsm_fragment.native needs a little-endian machine, and this one is big-endian"
    )

try:
    from lsm_fragment.native import arrays, encodings, gather, keys
except ImportError as error:
    raise ImportError(
        f"lsm_fragment.native is not compiled for this Python: {error}. Install a wheel of lsm-compactor;"
        " in a checkout run `make setup`. A zip of sources cannot carry compiled modules."
    ) from error

__all__ = [
    "arrays",
    "as_bytes",
    "as_flags",
    "as_words",
    "encodings",
    "gather",
    "keys",
    "validity",
]


def as_bytes(data: memoryview) -> npt.NDArray[np.uint8]:
    """Returns a buffer as bytes, without copying."""
    return np.frombuffer(data, dtype=np.uint8)


def as_words(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns values of 1, 2, 4 or 8 bytes as unsigned integers, without copying."""
    return values.view(f"u{values.itemsize}")


def as_flags(mask: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.uint8] | None:
    """Returns a mask as bytes, without copying."""
    return None if mask is None else mask.view(np.uint8)


def validity(array: pa.Array) -> tuple[npt.NDArray[np.uint8] | None, int]:
    """Returns an array's validity bitmap (None if nothing is null) and the bit of its first row."""
    if not array.null_count:
        return None, 0
    return np.frombuffer(array.buffers()[0], dtype=np.uint8), array.offset
