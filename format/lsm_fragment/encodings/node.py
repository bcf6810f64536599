"""Defines the encoding tree of a chunk (SPEC section 5): nodes, their buffers and their serialised form."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from lsm_fragment import native
from lsm_fragment.arrays.buffers import pack_bits
from lsm_fragment.blocks.compression import compressed_bytes
from lsm_fragment.native.encodings import decode

IntArray = npt.NDArray[Any]
Buffer = Any
"""Any object with the buffer protocol: bytes, memoryview, numpy or Arrow buffer."""

_NODE: Final = struct.Struct("<BBBBIQQq")
NODE_BYTES: Final = _NODE.size
_FLAG_VALIDITY: Final = 1


class Encoding(IntEnum):
    NULL = decode.ALL_NULL
    PLAIN = 1
    CONSTANT = decode.CONSTANT
    PACKED = decode.PACKED
    RUN_LENGTH = decode.RUN_LENGTH
    DICTIONARY = 5
    VARLEN = 6
    LIST = 7
    FIXED_LIST = 8
    STRUCT = 9
    DECIMAL = 10
    MULTIPLE = decode.MULTIPLE
    TEMPLATE = 12
    LETTERS = 13
    VOCABULARY = 14


MAX_UNBACKED_VALUES: Final = 1 << 27
"""A node may have this many values, or 8 per byte of the payload if that is more. It bounds the memory that
constants and nulls, which take no bytes, make a reader allocate."""


class Node(Struct, frozen=True, kw_only=True):
    """One node with its buffers (when writing) and its children."""

    encoding: Encoding
    length: int
    null_count: int = 0
    width: int = 0
    param: int = 0
    has_validity: bool = False
    buffers: tuple[Buffer, ...] = ()
    children: tuple[Node, ...] = ()
    known_bytes: int = 0
    """Bytes that decoding a NULL, TEMPLATE, LETTERS or VOCABULARY node takes; used when writing, not
    stored."""
    text_bytes: int = 0
    """Bytes of the strings of a TEMPLATE, LETTERS or VOCABULARY node; used when writing, not stored."""
    is_dense: bool = False
    """Whether a codec cannot shrink the buffers; used when writing, not stored."""

    def walk(self) -> list[Node]:
        """Returns this node and all below it, in pre-order."""
        nodes = [self]
        for child in self.children:
            nodes += child.walk()
        return nodes


def pack_nodes(root: Node) -> bytes:
    """Serialises the tree as the chunk's meta."""
    return b"".join(
        _NODE.pack(
            node.encoding,
            node.has_validity * _FLAG_VALIDITY,
            node.width,
            0,
            len(node.children),
            node.length,
            node.null_count,
            _as_signed(node.param),
        )
        for node in root.walk()
    )


WORD_BYTES: Final = 8
"""Alignment of buffers in the raw payload."""


def join_buffers(root: Node) -> memoryview:
    """Returns the raw payload: buffers in node order, each padded with zeros to a multiple of 8 bytes. A
    single buffer of whole words is not copied."""
    views = [memoryview(buffer).cast("B") for node in root.walk() for buffer in node.buffers]
    if len(views) == 1 and not views[0].nbytes % WORD_BYTES:
        return views[0]
    # Arrow's pool reuses its pages.
    joined = pa.allocate_buffer(sum(_padded(view.nbytes) for view in views))
    out, at = np.frombuffer(joined, dtype=np.uint8), 0
    for view in views:
        stop = at + view.nbytes
        out[at:stop] = view  # numpy releases the GIL
        at += _padded(view.nbytes)
        out[stop:at] = 0
    return out.data


def raw_bytes(root: Node) -> int:
    """Returns the bytes that a node and its descendants take in the raw payload."""
    return sum(padded_bytes(buffer) for node in root.walk() for buffer in node.buffers)


def padded_bytes(buffer: Buffer) -> int:
    """Returns the bytes that a buffer takes in the raw payload."""
    return _padded(memoryview(buffer).nbytes)


def _padded(size: int) -> int:
    return size + -size % WORD_BYTES


def _as_signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


MAX_VALUE_BYTES: Final = 24
"""Decode scratch per value: one int64 plus one decimal128."""


def under_nulls(node: Node, valid: npt.NDArray[np.bool_] | None) -> Node:
    """Adds a validity bitmap to a node that also has values in null places."""
    if valid is None:
        return node
    return replace(
        node,
        null_count=len(valid) - int(np.count_nonzero(valid)),
        has_validity=True,
        buffers=(pack_bits(valid), *node.buffers),
    )


def with_nulls_filled(values: npt.NDArray[Any], valid: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Fills each null with the value before it, which packs best."""
    out = np.empty_like(values)
    native.arrays.integers.fill_nulls(
        native.as_words(values), valid.view(np.uint8), native.as_words(out)
    )
    return out


def with_validity(
    encoding: Encoding,
    length: int,
    valid: npt.NDArray[np.bool_] | None,
    buffers: list[Any],
    *,
    param: int = 0,
    is_dense: bool = False,
    children: tuple[Node, ...] = (),
) -> Node:
    nulls = 0 if valid is None else length - int(np.count_nonzero(valid))
    if valid is not None:
        buffers = [pack_bits(valid), *buffers]
    return Node(
        encoding=encoding,
        length=length,
        null_count=nulls,
        param=param,
        has_validity=valid is not None,
        buffers=tuple(buffers),
        children=children,
        is_dense=is_dense,
    )


def stored_bytes(*nodes: Node) -> int:
    """Returns the size of nodes after compression."""
    stored = compressed_bytes(b"".join(map(join_buffers, nodes)))
    return sum(len(pack_nodes(node)) for node in nodes) + stored
