"""VOCABULARY: text as numbers of the words that a chunk has in common (SPEC section 5).

Text of words, such as prose, names, paths, stack traces and documents, takes a number of two bytes for each
word of five to six. A codec then has a third of the bytes to look at, and finds repeated words as short
matches. The words and single bytes as symbols of a fixed size are the idea of FSST (Boncz, Neumann, Leis,
VLDB 2020), which has 255 symbols of up to 8 bytes for a chunk, and chooses them from a sample.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec.structs import replace

from lsm_fragment import native
from lsm_fragment.arrays.buffers import binary_parts, valid_mask
from lsm_fragment.arrays.sizes import running_totals
from lsm_fragment.arrays.types import is_binary_like, is_large_offsets
from lsm_fragment.arrays.worded import MAX_NUMBERS_FRACTION, NUMBER_BYTES, Words, worded
from lsm_fragment.blocks.compression import compressed_bytes
from lsm_fragment.encodings.integers import encode_ints
from lsm_fragment.encodings.node import MAX_VALUE_BYTES, Encoding, Node, with_validity
from lsm_fragment.encodings.reading import ChunkReader, Keep, NodeShape, checked
from lsm_fragment.encodings.samples import sampled_bytes
from lsm_fragment.native.encodings.vocabulary import FIRST_WORD, MAX_WORD_BYTES, MAX_WORDS

ENCODING = Encoding.VOCABULARY
SHAPE = NodeShape(children=2, has_param=True)

MIN_TEXT_BYTES: Final = 256 << 10
"""Leave less text as it is: its words hardly recur, and each is stored once."""
_MAX_DISTINCT: Final = 0.95
"""Leave text whose sample has more different words than this fraction of its words."""
_MAX_FRACTION: Final = 0.85
"""Leave text of which a codec makes less than numbers and words take, divided by this."""
_MAX_FIRST_NUMBERS: Final = 0.29
"""Leave text that takes more numbers for each byte, unless other chunks of the column have words: merges take
time for each number, and a codec for each byte. Numbers that spell count twice: they hardly recur."""
_MAX_NUMBERS: Final = (1 << 30) - 1
_MAX_KEPT_BYTES: Final = (1 << 30) - 1
"""Expand more text: if all of it had to be spelled, 32 bits would not count the bytes of the numbers."""


class ByVocabulary(NamedTuple):
    """Text that is encoded by its words."""

    node: Node
    fraction: float
    """About how many bytes it takes for one of the text, both after a codec; 0 if that was not found out."""
    plain_bytes: int
    """The bytes of its numbers and words, before a codec."""


def encode_by_vocabulary(
    valid: npt.NDArray[np.bool_] | None,
    lengths: npt.NDArray[Any],
    data: memoryview,
    *,
    is_decided: bool = False,
    words: Words | None = None,
) -> ByVocabulary | None:
    """Encodes text by its words; None if that saves too little.

    valid, lengths, data: see `lsm_fragment.encodings.varlen.text_parts`. is_decided: whether the text of
    other chunks of the column was so encoded; then no sample is compressed. words: those of the text, if they
    are known.
    """
    size = data.nbytes
    if size < MIN_TEXT_BYTES or not (is_decided or _may_pay(data)):
        return None
    most = int(size * (MAX_NUMBERS_FRACTION if is_decided else _MAX_FIRST_NUMBERS))
    words = words or _words_of(lengths, data, most)
    if words is None or len(words.numbers) > NUMBER_BYTES * most:
        return None
    fraction = 0 if is_decided else _fraction(data, words)
    if fraction > _MAX_FRACTION:
        return None
    return ByVocabulary(_node(words, valid, size), fraction, len(words.numbers) + len(words.text))


def _words_of(lengths: npt.NDArray[Any], data: memoryview, max_numbers: int) -> Words | None:
    """Numbers the words of text; None if that takes more numbers."""
    found = native.encodings.vocabulary.encode(
        running_totals(lengths), native.as_bytes(data), max_numbers
    )
    return None if found is None else Words(*found)


def _node(words: Words, valid: npt.NDArray[np.bool_] | None, text_bytes: int) -> Node:
    """text_bytes: the bytes of the text."""
    vocabulary = Node(
        encoding=Encoding.VARLEN,
        length=len(words.sizes),
        param=len(words.text),
        buffers=(words.text,),
        children=(encode_ints(words.sizes),),
    )
    rows = len(words.counts)
    node = with_validity(
        ENCODING,
        rows,
        valid,
        [words.numbers],
        param=len(words.numbers) // NUMBER_BYTES,
        children=(vocabulary, encode_ints(words.counts)),
    )
    return replace(node, known_bytes=MAX_VALUE_BYTES * rows + text_bytes, text_bytes=text_bytes)


def _may_pay(data: memoryview) -> bool:
    """Returns whether the words of a sample recur, which those of random ids don't, and are not too short."""
    sample = sampled_bytes(data)
    most = int(sample.nbytes * _MAX_FIRST_NUMBERS)
    words = _words_of(np.array([sample.nbytes]), sample, most)
    if words is None:
        return False
    numbers = np.frombuffer(words.numbers, dtype=np.uint16)
    is_word = (numbers >= FIRST_WORD) & (numbers < FIRST_WORD + MAX_WORDS)
    spelled = len(numbers) - int(np.count_nonzero(is_word))
    return len(numbers) + spelled <= most and len(words.sizes) <= _MAX_DISTINCT * len(numbers)


def _fraction(data: memoryview, words: Words) -> float:
    """Returns about how many bytes a codec makes of numbers and words for one of the text."""
    by_words = _likely_bytes(memoryview(words.numbers)) + _likely_bytes(memoryview(words.text))
    return by_words / max(1, _likely_bytes(data))


def _likely_bytes(data: memoryview) -> float:
    """Returns about how many bytes a codec makes of the data."""
    sample = sampled_bytes(data)
    return compressed_bytes(sample) / max(1, sample.nbytes) * data.nbytes


def fits(dtype: pa.DataType) -> bool:
    return is_binary_like(dtype)


def decode(reader: ChunkReader, dtype: pa.DataType, length: int, keep: Keep) -> pa.Array:
    cursor, count, charge = reader.cursor, reader.cursor.param, reader.allowance.charge
    validity, nulls = reader.validity()
    if not 0 <= count <= _MAX_NUMBERS:
        raise ValueError(f"{count} numbers of words")
    stored = cursor.buffer(NUMBER_BYTES * count)
    sizes, words = _take_words(reader)
    ends = np.frombuffer(cursor.child_integers(length).offsets(count, False), dtype=np.int32)
    numbers = np.frombuffer(stored, dtype=np.uint8)
    width = 8 if is_large_offsets(dtype) else 4
    charge(width * (length + 1))
    room = pa.allocate_buffer(width * (length + 1))
    offsets = np.frombuffer(room, dtype=f"i{width}")
    size, has_loose_bytes = native.encodings.vocabulary.measure(numbers, ends, sizes, offsets)
    are_kept = keep.words and dtype.equals(pa.string())
    if are_kept and not has_loose_bytes and size <= _MAX_KEPT_BYTES:
        charge(width * (length + 1))
        buffers = [validity, pa.py_buffer(ends * np.int32(NUMBER_BYTES)), stored]
        rows = pa.Array.from_buffers(pa.binary(), length, buffers, nulls)
        if _may_stay(rows, words):
            reader.allowance.check_kept(size)
            return worded(rows, words)
    charge(size)
    text = native.encodings.vocabulary.expand(
        numbers, sizes, native.as_bytes(words.buffers()[2]), size
    )
    return checked(pa.Array.from_buffers(dtype, length, [validity, room, text], nulls))


def _take_words(reader: ChunkReader) -> tuple[npt.NDArray[np.uint8], pa.Array]:
    """Takes the vocabulary. Returns the bytes of each word, and the words: strings that were not checked."""
    cursor, count = reader.cursor, reader.cursor.next_length
    if count > MAX_WORDS:
        raise ValueError(f"{count} words where numbers are for {MAX_WORDS}")
    if cursor.take(count) != Encoding.VARLEN or cursor.null_count:
        raise ValueError("a vocabulary that is not VARLEN without nulls")
    text = cursor.buffer(cursor.param)
    ends = cursor.child_integers(count).offsets(text.size, False)
    sizes = np.diff(np.frombuffer(ends, dtype=np.int32))
    if count and not 1 <= int(sizes.min()) <= int(sizes.max()) <= MAX_WORD_BYTES:
        raise ValueError(f"a word that has not 1 to {MAX_WORD_BYTES} bytes")
    return sizes.astype(np.uint8), pa.Array.from_buffers(pa.string(), count, [None, ends, text], 0)


def _may_stay(rows: pa.Array, words: pa.Array) -> bool:
    """Returns whether rows of numbers may stay a worded array: the words are strings by themselves, and nulls
    have none."""
    valid, (ends, _) = valid_mask(rows), binary_parts(rows)
    if valid is not None and bool(np.any(np.diff(ends)[~valid])):
        return False
    try:
        checked(words)
    except ValueError:
        return False
    return True
