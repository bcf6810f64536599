"""Packs text of few different letters, such as ids and tokens, by bits (LETTERS of SPEC section 5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_fragment import native

U8 = npt.NDArray[np.uint8]

_STRETCHES: Final = 4
_STRETCH_BYTES: Final = 16 << 10
_LEAST_FRAMED: Final = 64
"""The fewest values that a frame is looked for in: fewer have equal bytes by chance."""
_NO_HOLES: Final = np.empty(0, dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Lettering:
    """How text is packed."""

    alphabet: bytes
    """Ascending."""
    holes: U8
    """Of each place of a value: 1 if a letter stands there, 0 if the same byte does in all of them; empty if
    the text has no frame."""

    @property
    def width(self) -> int:
        """The bits of a letter."""
        return max(1, (len(self.alphabet) - 1).bit_length())

    @property
    def stored_alphabet(self) -> bytes:
        return self.alphabet.ljust(1 << self.width, b"\0")

    def letters(self, text_bytes: int) -> int:
        """Returns how many letters of so much text are packed."""
        if not len(self.holes):
            return text_bytes
        return text_bytes // len(self.holes) * int(np.count_nonzero(self.holes))

    def packed_bytes(self, text_bytes: int) -> float:
        return self.letters(text_bytes) * self.width / 8

    def framed_by(self, data: memoryview) -> Lettering:
        """Returns the lettering with the frame that all of `data` has, if it has one."""
        if not len(self.holes):
            return self
        return Lettering(self.alphabet, _find_holes(data, len(self.holes)))

    def pack(self, data: memoryview) -> pa.Buffer | None:
        """Returns the letters as a bit field of their places in the alphabet; None if there are others."""
        return native.encodings.letters.pack(
            native.as_bytes(data), self.holes, self.alphabet, self.width
        )


def find_lettering(data: memoryview, length: int, *, is_text: bool) -> Lettering | None:
    """Returns how text can be packed; None if it has too many different letters, or none.

    length: the bytes of every value that has any; 0 if these differ. is_text: whether only ASCII is packed,
    so that readers need not check that the bytes are UTF-8.
    """
    can_be_framed = (
        native.encodings.letters.LEAST_FRAME_BYTES
        <= length
        <= native.encodings.letters.MOST_FRAME_BYTES
    )
    is_framed = can_be_framed and data.nbytes >= _LEAST_FRAMED * length
    holes = _find_holes(data, length) if is_framed else _NO_HOLES
    bytes_of = native.as_bytes(data)
    alphabet = native.encodings.letters.find_alphabet(bytes_of, holes)
    if not alphabet:
        return None
    if is_text and not (alphabet.isascii() and bytes(bytes_of[: len(holes)]).isascii()):
        return None
    return Lettering(alphabet, holes)


def _find_holes(data: memoryview, length: int) -> U8:
    found = native.encodings.letters.find_holes(native.as_bytes(data), length)
    return _NO_HOLES if all(found) else np.frombuffer(found, dtype=np.uint8)


def sampled_bytes(data: memoryview, length: int = 1) -> memoryview:
    """Returns a few stretches of bytes, from the first to the last, or all if these are few.

    length: the bytes of a value; stretches have whole ones, unless these are long.
    """
    if data.nbytes <= _STRETCHES * _STRETCH_BYTES:
        return data
    unit = length if 0 < length <= native.encodings.letters.MOST_FRAME_BYTES else 1
    size = _STRETCH_BYTES // unit * unit
    step = (data.nbytes - size) // (_STRETCHES - 1) // unit * unit
    starts = range(0, _STRETCHES * step, step)
    return memoryview(b"".join(data[start : start + size] for start in starts))
