"""STRUCT: structs as their fields."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.buffers import valid_mask
from lsm_fragment.encodings.node import Encoding, Node, with_validity
from lsm_fragment.encodings.reading import ChunkReader, Keep, NodeShape

ENCODING = Encoding.STRUCT
SHAPE = NodeShape(children=None)


def encode_structs(array: pa.Array, child: Callable[[pa.Array], Node]) -> Node:
    """Encodes structs. child: the encoder of a field."""
    # flatten() pushes the struct's nulls into its fields, which normalises the values under them.
    children = tuple(child(part) for part in array.flatten())
    return with_validity(Encoding.STRUCT, len(array), valid_mask(array), [], children=children)


def fits(dtype: pa.DataType) -> bool:
    return bool(pt.is_struct(dtype))


def decode(reader: ChunkReader, dtype: pa.DataType, length: int, _keep: Keep) -> pa.Array:
    validity, nulls = reader.validity()
    if reader.cursor.children != dtype.num_fields:
        raise ValueError(f"encoding STRUCT has {reader.cursor.children} children")
    fields = [reader.decode(field.type, length) for field in dtype.fields]
    return pa.Array.from_buffers(dtype, length, [validity], nulls, children=fields)
