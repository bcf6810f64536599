"""Provides loops over rows as compiled code; `compiled` is None where it could not be built.

Every caller also has an implementation in numpy, which is slower and gives the same result to the bit. So
everything works without a C compiler, from a zip of sources, or with COMPACTOR_COMPILED=0.
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
    """Returns a buffer as bytes, without copying."""
    return np.frombuffer(data, dtype=np.uint8)


def as_flags(mask: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.uint8] | None:
    """Returns a mask in the form that the compiled loops take."""
    return None if mask is None else mask.view(np.uint8)


def table_size(rows: int) -> int:
    """Returns the size of a hash table for `rows` rows: a power of two, so that it is at most half full."""
    return 1 << max(4, (2 * rows - 1).bit_length())
