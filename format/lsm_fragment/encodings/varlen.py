"""VARLEN: strings and binaries as lengths and bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_fragment import compute as pc
from lsm_fragment.arrays.buffers import binary_parts, valid_mask
from lsm_fragment.arrays.sizes import hidden_bytes
from lsm_fragment.arrays.types import is_binary_like, is_large_offsets
from lsm_fragment.encodings.integers import encode_ints
from lsm_fragment.encodings.node import Encoding, Node, with_validity
from lsm_fragment.encodings.reading import ChunkReader, Keep, NodeShape, checked

ENCODING = Encoding.VARLEN
SHAPE = NodeShape(children=1, has_param=True)


def encode_varlen(array: pa.Array, ints: Callable[[npt.NDArray[Any]], Node] = encode_ints) -> Node:
    return varlen_node(*text_parts(array), ints=ints)


def varlen_node(
    valid: npt.NDArray[np.bool_] | None,
    lengths: npt.NDArray[Any],
    data: memoryview,
    *,
    is_dense: bool = False,
    ints: Callable[[npt.NDArray[Any]], Node] = encode_ints,
) -> Node:
    return with_validity(
        Encoding.VARLEN,
        len(lengths),
        valid,
        [data],
        param=data.nbytes,
        is_dense=is_dense,
        children=(ints(lengths),),
    )


def text_parts(
    array: pa.Array,
) -> tuple[npt.NDArray[np.bool_] | None, npt.NDArray[Any], memoryview]:
    """Returns the validity of strings or binaries, their lengths (0 for nulls), and all their bytes."""
    valid = valid_mask(array)
    if hidden_bytes(array):
        array = pc.fill_null(array, pa.scalar(b"", pa.binary()).cast(array.type))
    offsets, data = binary_parts(array)
    return valid, np.diff(offsets), data[int(offsets[0]) : int(offsets[-1])]


def fits(dtype: pa.DataType) -> bool:
    return is_binary_like(dtype)


def decode(reader: ChunkReader, dtype: pa.DataType, length: int, _keep: Keep) -> pa.Array:
    validity, nulls = reader.validity()
    data = reader.cursor.buffer(reader.cursor.param)
    offsets = reader.cursor.child_integers(length).offsets(data.size, is_large_offsets(dtype))
    return checked(pa.Array.from_buffers(dtype, length, [validity, offsets, data], nulls))
