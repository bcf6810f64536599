"""FIXED_LIST: lists of one size as their items."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.buffers import valid_mask
from lsm_fragment.arrays.moves import present_items
from lsm_fragment.encodings.node import Encoding, Node, with_validity


def encode_fixed(array: pa.Array, child: Callable[[pa.Array], Node]) -> Node:
    """Encodes structs and lists of fixed size."""
    dtype, length, valid = array.type, len(array), valid_mask(array)
    if pt.is_fixed_size_list(dtype):
        items = child(present_items(array))  # as structs do, lists push their nulls down
        return with_validity(Encoding.FIXED_LIST, length, valid, [], children=(items,))
    if pt.is_struct(dtype):
        # flatten() pushes the struct's nulls into its fields, which normalises the values under them.
        children = tuple(child(part) for part in array.flatten())
        return with_validity(Encoding.STRUCT, length, valid, [], children=children)
    raise AssertionError(f"not a storage type: {dtype}")
