"""LETTERS: text of few different bytes, such as ids and tokens, packed by bits (SPEC section 5)."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from lsm_fragment import native
from lsm_fragment.arrays.buffers import bits_of
from lsm_fragment.arrays.types import is_binary_like, is_large_offsets, is_string
from lsm_fragment.arrays.worded import Words
from lsm_fragment.blocks.compression import compressed_bytes
from lsm_fragment.encodings.integers import encode_ints
from lsm_fragment.encodings.node import MAX_VALUE_BYTES, Buffer, Encoding, Node, with_validity
from lsm_fragment.encodings.plain import is_noise, take_values
from lsm_fragment.encodings.reading import ChunkReader, Keep, NodeShape
from lsm_fragment.encodings.samples import CODEC_FRACTION, sampled_bytes
from lsm_fragment.encodings.varlen import text_parts, varlen_node
from lsm_fragment.encodings.vocabulary import encode_by_vocabulary
from lsm_fragment.native.encodings.decode import Cursor

ENCODING = Encoding.LETTERS
SHAPE = NodeShape(children=2, has_width=True, has_param=True)

U8 = npt.NDArray[np.uint8]

_MAX_BITS: Final = 6
_MIN_FRAMED: Final = 64
"""Look for a frame only from this number of values on: fewer may agree by chance."""
_NO_HOLES: Final = np.empty(0, dtype=np.uint8)


class Lettering(Struct, frozen=True):
    """An alphabet and a frame by which text is packed."""

    alphabet: bytes
    """Ascending."""
    holes: U8
    """For each byte position of a value: 1 for a letter, 0 for a byte that all values share; empty if there
    is no frame."""

    @property
    def width(self) -> int:
        """The bits of a letter."""
        return max(1, (len(self.alphabet) - 1).bit_length())

    @property
    def stored_alphabet(self) -> bytes:
        return self.alphabet.ljust(1 << self.width, b"\0")

    def letters(self, text_bytes: int) -> int:
        """Returns the number of packed letters in `text_bytes` of text."""
        if not len(self.holes):
            return text_bytes
        return text_bytes // len(self.holes) * int(np.count_nonzero(self.holes))

    def packed_bytes(self, text_bytes: int) -> float:
        return self.letters(text_bytes) * self.width / 8

    def framed_by(self, data: memoryview) -> Lettering:
        """Narrows the frame to the bytes that all values of `data` share."""
        if not len(self.holes):
            return self
        return Lettering(self.alphabet, _find_holes(data, len(self.holes)))

    def pack(self, data: memoryview) -> pa.Buffer | None:
        """Packs the text; None if it has bytes outside the alphabet."""
        return native.encodings.letters.pack(
            native.as_bytes(data), self.holes, self.alphabet, self.width
        )


def find_lettering(data: memoryview, length: int, *, is_text: bool) -> Lettering | None:
    """Returns the lettering of a text; None if it has too many different letters, or none.

    length: the common length of all non-empty values; 0 if it differs. is_text: pack ASCII only, so that
    readers need not validate UTF-8.
    """
    can_be_framed = (
        native.encodings.letters.MIN_FRAME_BYTES
        <= length
        <= native.encodings.letters.MAX_FRAME_BYTES
    )
    is_framed = can_be_framed and data.nbytes >= _MIN_FRAMED * length
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


_MIN_LETTERS: Final = 1024
"""Below this size, letter packing does not pay for storing its alphabet."""


def encode_strings(
    array: pa.Array, *, by_vocabulary: bool | None = None, words: Words | None = None
) -> Node:
    """Encodes strings or binaries without a dictionary: by LETTERS unless a codec clearly saves more, else by
    VOCABULARY if that saves enough, else by VARLEN. Where other chunks of the column are by VOCABULARY,
    this one is, unless packed letters take less.

    by_vocabulary: whether it does, if that is known. words: those of the strings, if they are known.
    """
    valid, lengths, data = text_parts(array)
    is_text = is_string(array.type)
    common = _common_length(lengths, data.nbytes)
    sample = sampled_bytes(data, common)
    likely = _likely_lettering(data, sample, common, is_text=is_text)
    if by_vocabulary:
        found = encode_by_vocabulary(valid, lengths, data, is_decided=True, words=words)
        most = math.inf if likely is None else likely.packed_bytes(data.nbytes)
        if found is not None and found.plain_bytes <= most:
            return found.node
    packed = None if likely is None else _by_letters(data, sample, likely, common, is_text=is_text)
    if packed is None:
        if by_vocabulary is None:
            found = encode_by_vocabulary(valid, lengths, data, words=words)
            if found is not None:
                return found.node
        return varlen_node(valid, lengths, data, is_dense=not is_text and is_noise(data))
    lettering, codes = packed
    node = with_validity(
        Encoding.LETTERS,
        len(array),
        valid,
        [codes, lettering.stored_alphabet],
        param=lettering.letters(data.nbytes),
        is_dense=True,
        children=(_frame_node(data, lettering.holes), _lengths_node(lengths, common)),
    )
    return replace(
        node,
        width=lettering.width,
        known_bytes=MAX_VALUE_BYTES * len(array) + data.nbytes,
        text_bytes=data.nbytes,
    )


def _likely_lettering(
    data: memoryview, sample: memoryview, length: int, *, is_text: bool
) -> Lettering | None:
    """Returns the lettering of a sample; None if it has too many different letters, or a codec makes the text
    clearly smaller. length: see `find_lettering`."""
    if data.nbytes < _MIN_LETTERS:
        return None
    likely = find_lettering(sample, length, is_text=is_text)
    return likely if likely is not None and _pays(likely, sample) else None


def _by_letters(
    data: memoryview, sample: memoryview, likely: Lettering, length: int, *, is_text: bool
) -> tuple[Lettering, Buffer] | None:
    """Packs text by letters. Returns the lettering and the packed codes; None if the sample lacks letters
    with which a codec makes it clearly smaller. likely: the sample's."""
    lettering = likely.framed_by(data)
    if (codes := lettering.pack(data)) is not None:
        return lettering, codes
    # The sample lacks some letters.
    complete = find_lettering(data, length, is_text=is_text)
    if complete is None or not _pays(complete, sample):
        return None
    return complete, complete.pack(data)


def _pays(lettering: Lettering, sample: memoryview) -> bool:
    """Returns whether packed letters take hardly more bytes than a codec's output, or fewer."""
    if math.log2(len(lettering.alphabet)) < CODEC_FRACTION * lettering.width:
        return False  # a codec saves more at any letter frequencies
    return compressed_bytes(sample) >= CODEC_FRACTION * lettering.packed_bytes(sample.nbytes)


def _common_length(lengths: npt.NDArray[Any], total: int) -> int:
    """Returns the length of all non-empty values; 0 if they differ."""
    longest = int(lengths.max(initial=0))
    return longest if longest * np.count_nonzero(lengths) == total else 0


def _lengths_node(lengths: npt.NDArray[Any], common: int) -> Node:
    """Encodes lengths. Those that are 0 or `common` take a bit each, which a codec can skip."""
    if not common or lengths.all():
        return encode_ints(lengths)
    present = encode_ints((lengths != 0).view(np.uint8), allow_runs=False)
    return Node(encoding=Encoding.MULTIPLE, length=len(lengths), param=common, children=(present,))


def _frame_node(data: memoryview, holes: npt.NDArray[np.uint8]) -> Node:
    """Makes the node of the frame: shared bytes, and nulls in the places of letters."""
    size = len(holes)
    first = np.frombuffer(data[:size], dtype=np.uint8)
    valid = None if not size else holes == 0
    node = with_validity(
        Encoding.PLAIN, size, valid, [np.where(holes, np.uint8(0), first)], param=1
    )
    return replace(node, known_bytes=size)


def fits(dtype: pa.DataType) -> bool:
    return is_binary_like(dtype)


def decode(reader: ChunkReader, dtype: pa.DataType, length: int, _keep: Keep) -> pa.Array:
    cursor, letters, width = reader.cursor, reader.cursor.param, reader.cursor.width
    validity, nulls = reader.validity()
    if not 1 <= width <= _MAX_BITS:
        raise ValueError(f"letters of {width} bits")
    if letters < 0:
        raise ValueError("a negative number of letters")
    codes = cursor.buffer(letters // 8 * width + (letters % 8 * width + 7) // 8)
    alphabet = cursor.buffer(1 << width)
    holes, frame = _take_frame(cursor)
    in_row = int(np.count_nonzero(holes))
    size = letters // in_row * len(holes) if in_row else letters
    reader.allowance.charge(size)
    offsets = cursor.child_integers(length).offsets(size, is_large_offsets(dtype))
    text = native.encodings.letters.unpack(
        codes, alphabet, width, letters, holes, frame, is_string(dtype)
    )
    return pa.Array.from_buffers(dtype, length, [validity, offsets, text], nulls)


def _take_frame(cursor: Cursor) -> tuple[U8, U8]:
    """Takes the node of the frame. Returns for each byte position whether it is a letter, and the bytes of
    the other positions."""
    size = cursor.next_length
    max_bytes = native.encodings.letters.MAX_FRAME_BYTES
    if cursor.take(size) != Encoding.PLAIN or size > max_bytes:
        raise ValueError(f"a frame of letters that is not PLAIN with up to {max_bytes} bytes")
    if size and not cursor.null_count:
        raise ValueError("a frame that has no place for letters")
    holes = ~bits_of(cursor.validity(), 0, size)
    frame = np.frombuffer(take_values(cursor, pa.uint8(), size), dtype=np.uint8)
    return holes.view(np.uint8), frame
