"""NULL: all values are null, and take no bytes."""

from __future__ import annotations

import pyarrow as pa

from lsm_fragment.arrays.sizes import nulls_bytes
from lsm_fragment.arrays.types import value_type
from lsm_fragment.encodings.node import Encoding, Node
from lsm_fragment.encodings.reading import ChunkReader, Keep, NodeShape
from lsm_fragment.limits import chunk_limit_bytes, too_large

ENCODING = Encoding.NULL
SHAPE = NodeShape()


def encode_nulls(array: pa.Array) -> Node:
    length = len(array)
    size = nulls_bytes(length, value_type(array.type))
    return Node(encoding=Encoding.NULL, length=length, null_count=length, known_bytes=size)


def fits(_dtype: pa.DataType) -> bool:
    return True


def decode(reader: ChunkReader, dtype: pa.DataType, length: int, _keep: Keep) -> pa.Array:
    reader.allowance.charge(nulls_bytes(length, dtype))
    return pa.nulls(length, dtype)


def nulls(length: int, dtype: pa.DataType) -> pa.Array:
    """Returns the nulls of a column that a fragment omits. Raises `ValueError` if they exceed the limit of a
    chunk."""
    size, limit = nulls_bytes(length, dtype), chunk_limit_bytes(0)
    if size > limit:
        raise ValueError(too_large(size, limit))
    return pa.nulls(length, dtype)
