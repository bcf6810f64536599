"""LIST: lists and maps as counts and items."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.buffers import valid_mask
from lsm_fragment.arrays.moves import list_parts
from lsm_fragment.arrays.types import is_large_offsets, is_list_like
from lsm_fragment.encodings.node import Encoding, IntArray, Node, with_validity
from lsm_fragment.encodings.reading import ChunkReader, Keep, NodeShape

ENCODING = Encoding.LIST
SHAPE = NodeShape(children=2)


def encode_lists(
    array: pa.Array, ints: Callable[[IntArray], Node], child: Callable[[pa.Array], Node]
) -> Node:
    """Encodes lists or maps. ints: the encoder of their lengths. child: the encoder of their items."""
    counts, items = list_parts(array)
    children = (ints(counts), child(items))
    return with_validity(Encoding.LIST, len(array), valid_mask(array), [], children=children)


def fits(dtype: pa.DataType) -> bool:
    return bool(is_list_like(dtype) or pt.is_map(dtype))


def decode(reader: ChunkReader, dtype: pa.DataType, length: int, _keep: Keep) -> pa.Array:
    validity, nulls = reader.validity()
    counts = reader.cursor.child_integers(length)
    elements = reader.cursor.next_length
    offsets = counts.offsets(elements, is_large_offsets(dtype))
    items = (
        _entries(reader, dtype, elements)
        if pt.is_map(dtype)
        else reader.decode(dtype.value_type, elements)
    )
    return pa.Array.from_buffers(dtype, length, [validity, offsets], nulls, children=[items])


def _entries(reader: ChunkReader, dtype: pa.DataType, length: int) -> pa.Array:
    entries = reader.decode(pa.struct([dtype.key_field, dtype.item_field]), length)
    if entries.null_count or entries.field(0).null_count:
        raise ValueError("a map has an entry or a key that is null")
    return entries
