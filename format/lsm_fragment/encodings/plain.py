"""PLAIN: fixed-width values as they are, or bits of booleans."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec.structs import replace
from pyarrow import types as pt

from lsm_fragment.arrays.buffers import (
    bits_of,
    fixed_width_bytes,
    fixed_width_view,
    pack_bits,
    valid_mask,
)
from lsm_fragment.blocks.compression import compressed_bytes
from lsm_fragment.encodings.node import WORD_BYTES, Buffer, Encoding, Node, with_validity
from lsm_fragment.encodings.packed import Survey
from lsm_fragment.encodings.reading import ChunkReader, Keep, NodeShape, checked
from lsm_fragment.encodings.samples import CODEC_FRACTION, SAMPLE_VALUES, sampled_bytes
from lsm_fragment.native.encodings.decode import Cursor

ENCODING = Encoding.PLAIN
SHAPE = NodeShape(has_param=True)

_PLAIN_FRACTION: Final = 0.97
"""Store values as they are if packing takes more than this fraction of their bits: they need no decoding."""


def plain_is_dense(array: pa.Array, sample: npt.NDArray[Any], seen: Survey) -> bool | None:
    """Returns None if packing beats storing values as they are; otherwise whether to skip the codec."""
    bits = array.type.bit_width
    if 2 * seen.bits < bits:
        return None
    sample = sample[: 2 * SAMPLE_VALUES]
    if 8 * compressed_bytes(sample.tobytes()) < CODEC_FRACTION * seen.bits * len(sample):
        return False
    return True if seen.bits > _PLAIN_FRACTION * bits else None


def encode_wide(array: pa.Array) -> Node:
    """Encodes values other than integers as they are, without a codec if it does not shrink a sample."""
    node = encode_plain(array)
    return replace(node, is_dense=is_noise(node.buffers[-1]))


def is_noise(data: Buffer) -> bool:
    """Returns whether a codec does not shrink a sample of the bytes."""
    sample = sampled_bytes(memoryview(data).cast("B"))
    return compressed_bytes(sample) > _PLAIN_FRACTION * sample.nbytes


def encode_plain(array: pa.Array, *, is_dense: bool = False) -> Node:
    width = fixed_width_bytes(array.type)
    assert width is not None
    valid = valid_mask(array)
    if width == 0:
        return with_validity(Encoding.PLAIN, len(array), valid, [np.empty(0, np.uint8)])
    word = WORD_BYTES if width % WORD_BYTES == 0 else width if width in (1, 2, 4) else 1
    words = fixed_width_view(array, np.dtype((f"u{word}", (width // word,)))).reshape(
        len(array), -1
    )
    if valid is not None:
        words = np.where(valid[:, None], words, words.dtype.type(0))
    return with_validity(
        Encoding.PLAIN, len(array), valid, [words.reshape(-1)], param=width, is_dense=is_dense
    )


def encode_bool(array: pa.Array) -> Node:
    valid = valid_mask(array)
    values = bits_of(array.buffers()[1], array.offset, len(array))
    bits = pack_bits(values if valid is None else values & valid)
    return with_validity(Encoding.PLAIN, len(array), valid, [bits])


def bytes_node(data: memoryview) -> Node:
    size = data.nbytes
    return Node(encoding=Encoding.PLAIN, length=size, param=1, buffers=(data,), known_bytes=size)


def fits(dtype: pa.DataType) -> bool:
    return bool(pt.is_boolean(dtype)) or fixed_width_bytes(dtype) is not None


def decode(reader: ChunkReader, dtype: pa.DataType, length: int, _keep: Keep) -> pa.Array:
    validity, nulls = reader.validity()
    buffers = [validity, take_values(reader.cursor, dtype, length)]
    return checked(pa.Array.from_buffers(dtype, length, buffers, nulls))


def take_values(cursor: Cursor, dtype: pa.DataType, length: int) -> pa.Buffer:
    """Takes the values of the current node. Raises `ValueError`."""
    width = cursor.param
    if pt.is_boolean(dtype) and not width:
        return cursor.buffer((length + 7) // 8)
    if width != fixed_width_bytes(dtype):
        raise ValueError(f"PLAIN values of {width} bytes for type {dtype}")
    return cursor.buffer(length * width)
