"""Gives access to functions of the C library that Python does not wrap."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes


@functools.cache
def c_library(*functions: str) -> ctypes.CDLL | None:
    """Returns the C library of this process; None if it lacks one of the functions."""
    # Imported here so that `--help` does not pay for it.
    import ctypes

    try:
        library = ctypes.CDLL(None)
    except OSError:
        return None
    return library if all(hasattr(library, name) for name in functions) else None
