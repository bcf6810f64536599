"""Converts arrays to chunks before compression, and back (SPEC section 5).

`choice` picks the encoding; each encoding is a file of its own, which `registry` finds. Threads may decode
concurrently; long loops release the GIL. Every fault is a `ValueError` with the cause, to which the caller
adds the place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from lsm_fragment.arrays.templated import (
    TextSurvey,
)
from lsm_fragment.arrays.worded import Words
from lsm_fragment.blocks.compression import Part
from lsm_fragment.encodings.allowance import Allowance
from lsm_fragment.encodings.choice import encode_root
from lsm_fragment.encodings.node import (
    MAX_UNBACKED_VALUES,
    MAX_VALUE_BYTES,
    WORD_BYTES,
    Encoding,
    Node,
    join_buffers,
    pack_nodes,
)
from lsm_fragment.encodings.reading import ChunkReader, Keep
from lsm_fragment.encodings.registry import MODULES
from lsm_fragment.encodings.template import Precedent
from lsm_fragment.limits import chunk_limit_bytes
from lsm_fragment.native.encodings.decode import Cursor


def decode_array(
    meta: bytes,
    raw: bytes | memoryview,
    dtype: pa.DataType,
    rows: int,
    *,
    keep_dictionary: bool = False,
    keep_templates: bool = False,
    keep_words: bool = False,
    max_bytes: int | None = None,
    reserve: Callable[[int], None] | None = None,
) -> pa.Array:
    """Decodes a chunk to a storage array of type `dtype`.

    keep_dictionary: keeps strings, binaries, lists and maps dictionary-coded (int32 codes over distinct
    values), so that a merge can move codes instead of bytes.
    keep_templates: keeps strings that are stored as templates as a templated array
    (`lsm_fragment.arrays.templated`).
    keep_words: keeps strings that are stored by a vocabulary as a worded array
    (`lsm_fragment.arrays.worded`).
    max_bytes: the limit for the chunk and its values, and 16 times as much for the expanded values of a kept
    dictionary or of kept templates; by default derived from the payload's length.
    reserve: called with the size before each larger allocation; its exceptions pass through.
    Raises `ValueError` on any inconsistency.
    """
    payload = pa.py_buffer(raw)
    allowance = Allowance(max_bytes or chunk_limit_bytes(payload.size), reserve)
    max_values = max(MAX_UNBACKED_VALUES, 8 * payload.size)
    cursor = Cursor(meta, payload, max_values, allowance.charge)
    array = ChunkReader(cursor, allowance, MODULES).decode(
        dtype, rows, Keep(keep_dictionary, keep_templates, keep_words)
    )
    cursor.finish()
    return array


_LOOSE_DIVISOR: Final = 32
"""Skip the codec if at most 1/32 of the payload is not bit-packed."""
_TEXT: Final = (Encoding.VARLEN, Encoding.LETTERS, Encoding.VOCABULARY)
_APART_BYTES: Final = 256 << 10
"""Compress text of at least this size apart from its lengths: joining them would copy it."""


class EncodedArray(Struct, frozen=True, kw_only=True):
    """A chunk before compression."""

    encoding: Encoding
    meta: bytes
    parts: tuple[Part, ...]
    """The payload, in parts that are compressed separately."""
    decoded_bytes: int
    """An upper bound of the memory for decoding, without the expanded values of dictionaries."""
    values: int
    """Number of values of all nodes."""
    dictionaries: int
    """Number of dictionary nodes."""
    text_bytes: int
    """Bytes of the strings that TEMPLATE, LETTERS and VOCABULARY nodes stand for."""

    @property
    def raw_bytes(self) -> int:
        return sum(part.data.nbytes for part in self.parts)

    @property
    def raw(self) -> bytes:
        return b"".join(part.data for part in self.parts)


def encode_array(
    array: pa.Array,
    *,
    is_decided: bool = False,
    seen: TextSurvey | None = None,
    words: Words | None = None,
    precedent: Precedent | None = None,
) -> EncodedArray:
    """Encodes an array.

    array: a storage array, or a dictionary-coded or templated one whose dictionary or templates are exactly
    those in use, in the order of use. is_decided: skip choosing a dictionary; see `Coding`.
    seen: the survey of a templated array, if there is one. words: those of strings, if they are numbered:
    then the strings are stored by them. precedent: see `encode_by_templates`.
    """
    return encoded_of(
        encode_root(array, is_decided=is_decided, seen=seen, words=words, precedent=precedent)
    )


def encoded_of(root: Node) -> EncodedArray:
    """Returns the chunk of a tree of nodes."""
    nodes = root.walk()
    return EncodedArray(
        encoding=root.encoding,
        meta=pack_nodes(root),
        parts=_parts(root),
        decoded_bytes=sum(map(_max_decoded_bytes, nodes)),
        values=sum(node.length for node in nodes),
        dictionaries=sum(node.encoding is Encoding.DICTIONARY for node in nodes),
        text_bytes=sum(node.text_bytes for node in nodes),
    )


def _parts(root: Node) -> tuple[Part, ...]:
    """Splits the payload into separately compressed parts. Templates: (head, numbers, texts). Long text:
    (bytes or numbers, the rest). Everything else: one part."""
    if root.encoding is Encoding.TEMPLATE and root.param:
        *head, numbers, texts = root.children
        whole, rest = _apart(numbers, texts)
        return Part(join_buffers(replace(root, children=tuple(head)))), *whole, Part(rest)
    if root.encoding in _TEXT and not root.has_validity:
        whole, raw = _apart(root, replace(root, buffers=root.buffers[1:]))
    else:
        whole, raw = (), join_buffers(root)
    loose = sum(
        memoryview(buffer).nbytes
        for node in root.walk()
        if not node.is_dense
        for buffer in node.buffers
    )
    size = raw.nbytes + sum(part.data.nbytes for part in whole)
    return *whole, Part(raw, loose * _LOOSE_DIVISOR <= size)


def _apart(node: Node, rest: Node) -> tuple[tuple[Part, ...], memoryview]:
    """Splits off the whole words of a node's buffer as a part, if the buffer is large. Returns that part, and
    the remaining bytes joined with those of `rest`."""
    data = memoryview(node.buffers[0]).cast("B")
    whole = data.nbytes - data.nbytes % WORD_BYTES if data.nbytes >= _APART_BYTES else 0
    others = join_buffers(replace(rest, buffers=(data[whole:], *rest.buffers)))
    return (Part(data[:whole], node.is_dense),) if whole else (), others


def _max_decoded_bytes(node: Node) -> int:
    """Returns the bytes that the decoder charges for a node."""
    return node.known_bytes or MAX_VALUE_BYTES * node.length
