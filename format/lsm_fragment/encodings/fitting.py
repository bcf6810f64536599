"""Encodes chunks within the limits of readers.

Readers accept 1 GiB for a chunk, or a multiple of its stored bytes (`lsm_fragment.limits`). Values that
compress further are stored in more bytes: without a codec, and if that is not enough (constants, values of
dictionaries), by encodings in which every value takes bytes.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.sizes import max_total_bytes, total_bytes
from lsm_fragment.arrays.storage import plain
from lsm_fragment.arrays.types import value_type
from lsm_fragment.blocks.compression import compress
from lsm_fragment.blocks.layout import MAX_META_BYTES, Codec
from lsm_fragment.encodings.choice import encode_backed
from lsm_fragment.encodings.coding import EncodedArray, decode_array, encoded_of
from lsm_fragment.encodings.node import MAX_UNBACKED_VALUES, NODE_BYTES, Encoding
from lsm_fragment.errors import LimitError
from lsm_fragment.limits import MAX_RATIO, max_written_bytes, written_limit_bytes
from lsm_fragment.value_errors import OF_VALUES

_NO_COMPRESSION: Final = 0
"""The compression level that stores bytes as they are."""


def check_parts(encoded: EncodedArray) -> None:
    """Raises `LimitError` for a type with more parts than readers accept."""
    if len(encoded.meta) > MAX_META_BYTES:
        raise LimitError(f"a type of {len(encoded.meta) // NODE_BYTES:,} parts is too wide")


def compress_fitting(
    encoded: EncodedArray, array: pa.Array, level: int
) -> tuple[EncodedArray, Codec, bytes]:
    """Compresses an encoded chunk. level: see `lsm_fragment.container.chunk.make_chunk`.

    Raises `LimitError` if readers would refuse the values in every encoding.
    """
    if (stored := _stored(encoded, array, level)) is not None:
        return encoded, *stored
    is_plain = array.type == value_type(array.type)
    if not is_plain and total_bytes(array) > max(max_written_bytes(), 2 * array.nbytes):
        raise _too_large(array)  # before the decoded values take memory
    array = plain(array)
    encoded = encoded_of(encode_backed(array))
    if (stored := _stored(encoded, array, level)) is not None:
        return encoded, *stored
    raise _too_large(array)


def _stored(encoded: EncodedArray, array: pa.Array, level: int) -> tuple[Codec, bytes] | None:
    """Returns the payload in a form that readers accept; None if they refuse it even uncompressed."""
    codec, stored = compress(encoded.parts, level)
    if _is_taken(encoded, array, len(stored)):
        return codec, stored
    if codec is not Codec.NONE and _is_taken(encoded, array, encoded.raw_bytes):
        return compress(encoded.parts, _NO_COMPRESSION)
    return None


def _too_large(array: pa.Array) -> LimitError:
    return LimitError(
        f"{len(array):,} values of type {value_type(array.type)} take more memory decoded than the "
        f"{max_written_bytes():,} bytes, or {MAX_RATIO} times what is stored, that readers allow"
    )


def _is_taken(encoded: EncodedArray, array: pa.Array, stored_bytes: int) -> bool:
    """Returns whether all readers accept the chunk at this stored size, including those that decode
    dictionaries."""
    limit = written_limit_bytes(stored_bytes)
    if encoded.raw_bytes > limit:
        return False
    if encoded.values <= MAX_UNBACKED_VALUES and _max_needed_bytes(encoded, array, limit) <= limit:
        return True
    # Readers that decode some rows first need more than those that decode all at once.
    if encoded.encoding is Encoding.TEMPLATE:
        return False
    is_coded = pt.is_dictionary(array.type)
    if is_coded and total_bytes(array) > limit - encoded.decoded_bytes:
        return False
    dtype = value_type(array.type)
    try:
        decode_array(
            encoded.meta,
            encoded.raw,
            dtype,
            len(array),
            keep_dictionary=is_coded,
            max_bytes=limit,
        )
    except (ValueError, OverflowError, *OF_VALUES):
        return False
    return True


def _max_needed_bytes(encoded: EncodedArray, array: pa.Array, limit: int) -> int:
    """Returns an upper bound of the memory for decoding, found without decoding; exact enough for nearly all
    chunks."""
    if not encoded.dictionaries:
        return encoded.decoded_bytes
    if not pt.is_dictionary(array.type):
        expanded = int(array.nbytes) + encoded.values
    else:
        expanded = max_total_bytes(array)
        if encoded.decoded_bytes + encoded.dictionaries * expanded > limit:
            expanded = total_bytes(array)
    return encoded.decoded_bytes + encoded.dictionaries * expanded
