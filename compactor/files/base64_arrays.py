"""Base64 of whole binary arrays: the codec runs once over the concatenated values, not once per value."""

from __future__ import annotations

import binascii
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_fragment.arrays.buffers import binary_parts

_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_NOT_BASE64: Final = "not standard base64 with padding"
_PAD_AS_ZERO: Final = bytes.maketrans(b"=", b"A")

Ints = npt.NDArray[np.int64]


def base64_encode(array: pa.Array) -> pa.Array:
    """Encodes binaries as large strings of standard padded base64; nulls stay null."""
    data, lengths = _joined(array.cast(pa.large_binary()).fill_null(b""))
    groups = (lengths + 2) // 3
    pads = groups * 3 - lengths
    is_data = np.ones(int(groups.sum()) * 3, dtype=np.bool_)
    is_data[_tail_positions(groups * 3, pads)] = False
    padded = np.zeros(len(is_data), dtype=np.uint8)
    padded[is_data] = data
    text = np.frombuffer(bytearray(binascii.b2a_base64(padded.data, newline=False)), dtype=np.uint8)
    text[_tail_positions(groups * 4, pads)] = ord("=")
    return _array(pa.large_string(), text, groups * 4, array)


def base64_decode(array: pa.Array) -> pa.Array:
    """Decodes standard padded base64 to large binaries; nulls stay null. Raises ValueError on other text."""
    text, lengths = _joined(array.cast(pa.large_string()).fill_null(""))
    raw = text.tobytes()
    foreign = raw.translate(None, _ALPHABET)
    if np.any(lengths % 4) or foreign.strip(b"="):
        raise ValueError(_NOT_BASE64)
    ends = np.cumsum(lengths)[lengths > 0]
    last, one_before = text[ends - 1] == ord("="), text[ends - 2] == ord("=")
    pads = np.zeros(len(lengths), dtype=np.int64)
    pads[lengths > 0] = last.astype(np.int64) + one_before
    if len(foreign) != pads.sum() or np.any(one_before & ~last):
        raise ValueError(_NOT_BASE64)
    decoded = np.frombuffer(binascii.a2b_base64(raw.translate(_PAD_AS_ZERO)), dtype=np.uint8)
    is_data = np.ones(len(decoded), dtype=np.bool_)
    is_data[_tail_positions(lengths // 4 * 3, pads)] = False
    return _array(pa.large_binary(), decoded[is_data], lengths // 4 * 3 - pads, array)


def _joined(array: pa.Array) -> tuple[npt.NDArray[np.uint8], Ints]:
    offsets, data = binary_parts(array)
    joined = np.frombuffer(data, dtype=np.uint8)[int(offsets[0]) : int(offsets[-1])]
    return joined, np.diff(offsets).astype(np.int64)


def _tail_positions(sizes: Ints, counts: Ints) -> Ints:
    """Returns the positions of the last `counts[i]` (0, 1 or 2) items of each run of `sizes[i]`."""
    ends = np.cumsum(sizes)
    return np.concatenate([ends[counts >= 1] - 1, ends[counts >= 2] - 2])


def _array(
    dtype: pa.DataType, data: npt.NDArray[np.uint8], lengths: Ints, nulls_of: pa.Array
) -> pa.Array:
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    validity: Any = nulls_of.is_valid().buffers()[1] if nulls_of.null_count else None
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(dtype, len(nulls_of), buffers)
