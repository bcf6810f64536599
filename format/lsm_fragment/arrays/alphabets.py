"""Alphabets: the sets of bytes in the variables of a slot, as 64 bits (SPEC section 5).

A query excludes slots by them without reading their variables.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]

_MARKS: Final = b"\x11\x12\x13"
_DIGITS: Final = b"0123456789"
_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _bits() -> U64:
    bits = np.zeros(256, dtype=np.uint64)
    bits[list(_MARKS)] = 1
    bits[0x80:] = 1 << 1
    for place, byte in enumerate(_LETTERS + _DIGITS, start=2):
        bits[byte] = 1 << place
    bits.setflags(write=False)
    return bits


BITS: Final = _bits()
"""The bit of each byte; 0 for bytes that no variable has. Shape (256,)."""
DIGITS: Final = int(np.bitwise_or.reduce(BITS[list(_DIGITS)]))
"""The alphabet of numbers."""
DISTINCTIVE: Final = DIGITS | 1
"""Digits and marks: each variable other than a word has at least one of them."""
