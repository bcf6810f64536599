"""Packs text of few different bytes, such as hexadecimal ids, by half bytes (NIBBLES of SPEC section 5)."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from format import native

U8 = npt.NDArray[np.uint8]

_STRETCHES: Final = 4
_STRETCH_BYTES: Final = 16 << 10


def sampled_bytes(data: memoryview) -> memoryview:
    """Returns a few stretches of bytes, from the first to the last, or all if these are few."""
    if data.nbytes <= _STRETCHES * _STRETCH_BYTES:
        return data
    step = (data.nbytes - _STRETCH_BYTES) // (_STRETCHES - 1)
    starts = range(0, _STRETCHES * step, step)
    return memoryview(b"".join(data[start : start + _STRETCH_BYTES] for start in starts))


def find_alphabet(data: memoryview, *, is_text: bool) -> bytes | None:
    """Returns the bytes that occur, ascending; None if they are too many for half bytes.

    is_text: whether only ASCII is packed, so that readers need not check that the bytes are UTF-8.
    """
    found = native.nibbles.find_alphabet(native.as_bytes(data))
    return None if found is None or (is_text and not found.isascii()) else found


def pack_nibbles(data: memoryview, expected: bytes, *, is_text: bool) -> tuple[U8, bytes] | None:
    """Returns the bytes by their places in the alphabet, and the alphabet as it is stored.

    expected: an alphabet that is likely to have all of the bytes; where it has not, they are looked for.
    Returns None if the bytes cannot be packed. is_text: see `find_alphabet`.
    """
    # Allocated from Arrow's pool, whose pages are reused.
    codes = native.as_bytes(memoryview(pa.allocate_buffer((data.nbytes + 1) // 2)))
    if _pack(data, expected, codes):
        return codes, _stored(expected)
    alphabet = find_alphabet(data, is_text=is_text)
    if alphabet is None or not _pack(data, alphabet, codes):
        return None
    return codes, _stored(alphabet)


def _pack(data: memoryview, alphabet: bytes, codes: U8) -> bool:
    return native.nibbles.pack(native.as_bytes(data), alphabet, codes)


def _stored(alphabet: bytes) -> bytes:
    return alphabet.ljust(native.nibbles.ALPHABET_BYTES, b"\0")
