"""Turns arrays into chunks before compression, and back (SPEC section 5).

The choice of an encoding is `choice`; each encoding is a file of its own, which `registry` finds. Threads
may decode at the same time; long loops let go of the GIL. Every fault is a `ValueError` with the cause; the
caller knows the place and adds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from lsm_fragment.arrays.templated import (
    TextSurvey,
)
from lsm_fragment.blocks.compression import Part
from lsm_fragment.encodings.allowance import Allowance
from lsm_fragment.encodings.choice import encode_backed, encode_root
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
    max_bytes: int | None = None,
    reserve: Callable[[int], None] | None = None,
) -> pa.Array:
    """Decodes a chunk to a storage array of type `dtype`.

    keep_dictionary: keeps strings, binaries, lists and maps dictionary-coded (int32 codes over distinct
    values), so that a merge can move codes instead of bytes.
    keep_templates: keeps strings that are stored as templates and variables as a templated array
    (`lsm_fragment.arrays.templated`).
    max_bytes: the most bytes that the chunk and its values may take, 16 times as much for the values of a
    kept dictionary or of kept templates; by default derived from the payload's length.
    reserve: called with every larger size before memory is allocated for it; what it raises comes through.
    Raises `ValueError` on any inconsistency.
    """
    payload = pa.py_buffer(raw)
    allowance = Allowance(max_bytes or chunk_limit_bytes(payload.size), reserve)
    max_values = max(MAX_UNBACKED_VALUES, 8 * payload.size)
    cursor = Cursor(meta, payload, max_values, allowance.charge)
    array = ChunkReader(cursor, allowance, MODULES).decode(
        dtype, rows, Keep(keep_dictionary, keep_templates)
    )
    cursor.finish()
    return array


_LOOSE_DIVISOR: Final = 32
"""Skip the codec if at most 1/32 of the payload is not bit-packed."""
_APART_BYTES: Final = 256 << 10
"""Compress text apart from its lengths from this size on, since copying it takes longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedArray:
    """A chunk before compression."""

    encoding: Encoding
    meta: bytes
    parts: tuple[Part, ...]
    """The payload, in parts that are compressed apart."""
    decoded_bytes: int
    """The most bytes that decoding takes, without the values that dictionaries stand for."""
    values: int
    """Values of all nodes together."""
    dictionaries: int
    """Number of dictionary nodes."""
    text_bytes: int
    """The bytes of all strings that templates and variables, or letters, make."""

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
    is_backed: bool = False,
    seen: TextSurvey | None = None,
) -> EncodedArray:
    """Encodes an array.

    array: a storage array, or a dictionary-coded or templated one whose dictionary or templates are exactly
    those in use, in the order of use. is_decided: whether more than nothing is known of it, see `Coding`.
    is_backed: avoids every encoding in which values take no bytes; then `array` must not be dictionary-coded.
    seen: what is known of a templated array.
    """
    root = (
        encode_backed(array) if is_backed else encode_root(array, is_decided=is_decided, seen=seen)
    )
    nodes = list(root.walk())
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
    """Returns the raw payload: of templates what queries read alone and the variables; of much text its whole
    words, which are not copied, and the rest; of other values all of it."""
    if root.encoding is Encoding.TEMPLATE and root.param:
        *head, numbers, texts = root.children
        whole, rest = _apart(numbers, texts)
        return Part(join_buffers(replace(root, children=tuple(head)))), *whole, Part(rest)
    if root.encoding in (Encoding.VARLEN, Encoding.LETTERS) and not root.has_validity:
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
    """Returns the whole words of a node's bytes as a part, if they are many; and the other bytes with what
    follows them in the payload."""
    data = memoryview(node.buffers[0]).cast("B")
    whole = data.nbytes - data.nbytes % WORD_BYTES if data.nbytes >= _APART_BYTES else 0
    others = join_buffers(replace(rest, buffers=(data[whole:], *rest.buffers)))
    return (Part(data[:whole], node.is_dense),) if whole else (), others


def _max_decoded_bytes(node: Node) -> int:
    """Returns the bytes that `lsm_fragment.encodings.coding` charges: integers as 64 bits, and once more
    when they are wrapped."""
    return node.known_bytes or MAX_VALUE_BYTES * node.length
