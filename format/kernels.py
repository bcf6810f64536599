"""Loops over rows as compiled code, where it could be built; `compiled` is None where not.

Every caller has a way in numpy beside it, some times slower, that gives the same to the bit: without a C
compiler, from a zip of sources, or with COMPACTOR_COMPILED=0 everything works all the same.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from types import ModuleType

import numpy as np
import numpy.typing as npt

compiled: ModuleType | None = None
if os.environ.get("COMPACTOR_COMPILED", "1") != "0" and sys.byteorder == "little":
    with contextlib.suppress(ImportError):
        compiled = importlib.import_module("format._compiled")


def as_bytes(data: memoryview) -> npt.NDArray[np.uint8]:
    """A buffer as bytes, without copying."""
    return np.frombuffer(data, dtype=np.uint8)


def as_flags(mask: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.uint8] | None:
    """A mask as the compiled loops take it."""
    return None if mask is None else mask.view(np.uint8)


def table_size(rows: int) -> int:
    """Of a hash table for so many rows: a power of two, at most half full."""
    return 1 << max(4, (2 * rows - 1).bit_length())
