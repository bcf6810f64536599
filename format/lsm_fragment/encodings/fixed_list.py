"""FIXED_LIST: lists of one size as their items."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.buffers import valid_mask
from lsm_fragment.arrays.moves import present_items
from lsm_fragment.encodings.node import Encoding, Node, with_validity
from lsm_fragment.encodings.reading import ChunkReader, Keep, NodeShape

ENCODING = Encoding.FIXED_LIST
SHAPE = NodeShape(children=1)


def encode_fixed_lists(array: pa.Array, child: Callable[[pa.Array], Node]) -> Node:
    """Encodes lists of fixed size. child: the encoder of their items."""
    items = child(present_items(array))  # lists push their nulls down, as structs do
    return with_validity(Encoding.FIXED_LIST, len(array), valid_mask(array), [], children=(items,))


def fits(dtype: pa.DataType) -> bool:
    return bool(pt.is_fixed_size_list(dtype))


def decode(reader: ChunkReader, dtype: pa.DataType, length: int, _keep: Keep) -> pa.Array:
    validity, nulls = reader.validity()
    items = reader.decode(dtype.value_type, length * dtype.list_size)
    return pa.Array.from_buffers(dtype, length, [validity], nulls, children=[items])
