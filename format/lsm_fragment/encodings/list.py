"""LIST: lists and maps as counts and items."""

from __future__ import annotations

import pyarrow as pa

from lsm_fragment.arrays.buffers import valid_mask
from lsm_fragment.arrays.moves import list_parts
from lsm_fragment.encodings.choice import encode
from lsm_fragment.encodings.integers import encode_ints
from lsm_fragment.encodings.node import Encoding, Node, with_validity


def encode_lists(array: pa.Array) -> Node:
    counts, items = list_parts(array)
    children = (encode_ints(counts), encode(items))
    return with_validity(Encoding.LIST, len(array), valid_mask(array), [], children=children)
