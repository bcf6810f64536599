"""Decodes chunks to storage arrays: decompress, wrap, check that everything fits (SPEC section 5).

Every fault is a `ValueError` with the cause; the caller knows the place and adds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from format import native
from format.limits import KEPT_RATIO, most_chunk_bytes, too_large
from format.nodes import (
    INT_ENCODINGS,
    MAX_UNBACKED_VALUES,
    Encoding,
    Node,
    fixed_width_bytes,
    float_words,
    int_dtype,
    total,
    unpack_nodes,
    valid_mask,
)
from format.sizes import cumulative_bytes, nulls_bytes
from format.storage import decoded
from format.types import is_binary_like, is_large_offsets, is_list_like, may_stay_coded

_SMALL_BYTES: Final = 16 << 10
"""The most bytes that are allocated without asking `reserve`."""
_MAX_OFFSET_32: Final = 2**31 - 1
_WORD: Final = 2**64 - 1
_MAX_DIGITS: Final = 15
_LITTLE_BYTES: Final = 64 << 20
"""The most bytes for which a kept dictionary's values are not counted."""


def decode_array(
    meta: bytes,
    raw: bytes | memoryview,
    dtype: pa.DataType,
    rows: int,
    *,
    keep_dictionary: bool = False,
    most_bytes: int | None = None,
    reserve: Callable[[int], None] | None = None,
) -> pa.Array:
    """Decodes a chunk to a storage array of type `dtype`.

    keep_dictionary: keeps strings, binaries, lists and maps dictionary-coded (int32 codes over distinct
    values), so that a merge can move codes instead of bytes.
    most_bytes: the most bytes that the chunk and its values may take, 16 times as much for the values of a
    kept dictionary; by default derived from the payload's length.
    reserve: called with every larger size before memory is allocated for it; what it raises comes through.
    Raises `ValueError` on any inconsistency.
    """
    cursor = _Cursor(unpack_nodes(meta), raw, most_bytes or most_chunk_bytes(len(raw)), reserve)
    array = _decode(cursor, dtype, rows, keep_dictionary=keep_dictionary)
    cursor.finish()
    return array


class _Cursor:
    """A cursor that walks nodes and buffers in step."""

    def __init__(
        self,
        nodes: list[tuple[Node, int]],
        raw: bytes | memoryview,
        most_bytes: int,
        reserve: Callable[[int], None] | None,
    ) -> None:
        self._reserve = reserve
        self._nodes = nodes
        self._most_bytes = most_bytes
        self._charged_bytes = 0
        self._next = 0
        self._raw = pa.py_buffer(raw)
        self._position = 0
        # Checked before any node is decoded, since all together can be far more than each.
        unbacked = sum(node.length for node, _ in nodes if _may_take_no_bytes(node))
        if unbacked > max(MAX_UNBACKED_VALUES, 8 * self._raw.size):
            raise ValueError(f"{unbacked} values in a payload of {self._raw.size} bytes")

    def node(self, length: int) -> tuple[Node, int]:
        """Returns the next node and its number of children.

        Raises `ValueError` unless it has `length` values.
        """
        node, children = self._peek()
        self._next += 1
        if node.length != length:
            raise ValueError(f"{node.length} values where {length} belong")
        if length > max(MAX_UNBACKED_VALUES, 8 * self._raw.size):
            raise ValueError(f"{length} values in a payload of {self._raw.size} bytes")
        return node, children

    def charge(self, size: int) -> None:
        """Counts memory before it is allocated. Raises `ValueError` if it is too much for the payload."""
        self._charged_bytes += size
        if self._charged_bytes > self._most_bytes:
            raise ValueError(too_large(self._charged_bytes, self._most_bytes))
        if self._reserve is not None and size > _SMALL_BYTES:
            self._reserve(size)

    def allow(self, size: int) -> None:
        """Checks the size of a kept dictionary's values.

        Raises `ValueError` if it is too much for the payload.
        """
        if size > KEPT_RATIO * self._most_bytes:
            raise ValueError(too_large(size, KEPT_RATIO * self._most_bytes))

    def peek_length(self) -> int:
        """Returns the next node's length, for children whose length their parent does not know."""
        return self._peek()[0].length

    def peek_encoding(self) -> Encoding:
        return self._peek()[0].encoding

    def _peek(self) -> tuple[Node, int]:
        if self._next == len(self._nodes):
            raise ValueError("the encoding tree ends early")
        return self._nodes[self._next]

    def buffer(self, size: int) -> pa.Buffer:
        if size < 0 or self._position + size > self._raw.size:
            raise ValueError("a buffer reaches past the end of the payload")
        buffer = self._raw.slice(self._position, size)
        self._position += size + -size % 8
        return buffer

    def finish(self) -> None:
        if self._position != self._raw.size:
            raise ValueError("the payload is not filled exactly by its buffers")
        if self._next < len(self._nodes):
            raise ValueError("the encoding tree has nodes left over")


def _may_take_no_bytes(node: Node) -> bool:
    is_narrow = node.encoding is Encoding.PACKED and not node.width
    return is_narrow or node.encoding in (Encoding.CONSTANT, Encoding.RUN_LENGTH)


def _decode(
    cursor: _Cursor, dtype: pa.DataType, length: int, *, keep_dictionary: bool = False
) -> pa.Array:
    node, children = cursor.node(length)
    expected = _expected_children(node.encoding, dtype)
    if children != expected:
        raise ValueError(f"encoding {node.encoding.name} has {children} children")
    if node.encoding is Encoding.NULL:
        if node.null_count != length:
            raise ValueError("NULL with values that are none")
        cursor.charge(nulls_bytes(length, dtype))
        return pa.nulls(length, dtype)
    validity = _validity(cursor, node)
    if node.encoding is Encoding.DICTIONARY:
        if pt.is_struct(dtype) or pt.is_fixed_size_list(dtype) or pt.is_boolean(dtype):
            raise ValueError(f"encoding DICTIONARY does not go with type {dtype}")
        return _decode_dictionary(cursor, node, dtype, validity, keep=keep_dictionary)
    if node.encoding in INT_ENCODINGS:
        return _decode_wrapped_ints(cursor, node, dtype, validity)
    if node.encoding is Encoding.PLAIN:
        return _decode_plain(cursor, node, dtype, validity)
    if node.encoding is Encoding.DECIMAL and pt.is_float64(dtype):
        return _decode_decimals(cursor, node, validity)
    if node.encoding is Encoding.VARLEN and is_binary_like(dtype):
        return _decode_varlen(cursor, node, dtype, validity)
    return _decode_nested(cursor, node, dtype, validity)


def _validity(cursor: _Cursor, node: Node) -> pa.Buffer | None:
    if not node.has_validity:
        return None
    bitmap = cursor.buffer((node.length + 7) // 8)
    bits = pa.Array.from_buffers(pa.bool_(), node.length, [None, bitmap], 0)
    if node.length - bits.true_count != node.null_count:
        raise ValueError("the validity bitmap has another number of nulls than the node")
    return bitmap


def nulls(length: int, dtype: pa.DataType) -> pa.Array:
    """Returns the nulls of a column that a fragment left out. Raises `ValueError` if they exceed any chunk's
    limit."""
    size, most = nulls_bytes(length, dtype), most_chunk_bytes(0)
    if size > most:
        raise ValueError(too_large(size, most))
    return pa.nulls(length, dtype)


def _expected_children(encoding: Encoding, dtype: pa.DataType) -> int:
    match encoding:
        case Encoding.NULL | Encoding.PLAIN | Encoding.CONSTANT | Encoding.PACKED:
            return 0
        case Encoding.VARLEN | Encoding.FIXED_LIST | Encoding.DECIMAL | Encoding.MULTIPLE:
            return 1
        case Encoding.STRUCT:
            return int(dtype.num_fields) if pt.is_struct(dtype) else -1
        case _:
            return 2


# --- integers -------------------------------------------------------------------------------


_IN_RUNS: Final = INT_ENCODINGS - {Encoding.RUN_LENGTH}
_IN_MULTIPLES: Final = frozenset({Encoding.CONSTANT, Encoding.PACKED})


def _decode_ints(
    cursor: _Cursor,
    length: int,
    allowed: frozenset[Encoding] = INT_ENCODINGS,
    target: type[Any] = np.uint64,
) -> npt.NDArray[Any]:
    """Decodes an integer child as unsigned `target`, modulo its width. allowed: its possible encodings."""
    node, children = cursor.node(length)
    fits = node.encoding in allowed and not node.has_validity
    if not fits or children != _expected_children(node.encoding, pa.int64()):
        raise ValueError("an integer child has an encoding that is not for integers")
    return _int_body(cursor, node, target)


def _decode_int64(
    cursor: _Cursor, length: int, allowed: frozenset[Encoding] = INT_ENCODINGS
) -> npt.NDArray[np.int64]:
    return _decode_ints(cursor, length, allowed).view(np.int64)


def _int_body(cursor: _Cursor, node: Node, target: type[Any]) -> npt.NDArray[Any]:
    """Decodes integers as unsigned `target`, modulo its width."""
    size = np.dtype(target).itemsize
    if node.encoding is Encoding.RUN_LENGTH:
        return _decode_runs(cursor, node.length, target)
    if node.encoding is Encoding.MULTIPLE:
        values = _decode_ints(cursor, node.length, _IN_MULTIPLES, target)
        native.integers.multiply(values, node.param & _WORD)
        return values
    cursor.charge(size * node.length)
    if node.encoding is Encoding.CONSTANT:
        return np.full(node.length, node.param & (1 << 8 * size) - 1, dtype=target)
    blocks = -(-node.length // native.bits.BLOCK_VALUES)
    entries = cursor.buffer(native.bits.ENTRY_BYTES * blocks)
    data = cursor.buffer(node.param)
    values = np.empty(node.length, dtype=target)
    native.bits.unpack(_bytes_of(entries), _bytes_of(data), node.width, values)
    return values


def _bytes_of(buffer: pa.Buffer) -> npt.NDArray[np.uint8]:
    return np.frombuffer(buffer, dtype=np.uint8)


def _decode_runs(cursor: _Cursor, length: int, target: type[Any]) -> npt.NDArray[Any]:
    runs = cursor.peek_length()
    if runs > length:
        raise ValueError("more runs than values")
    lengths = _decode_int64(cursor, runs, _IN_RUNS)
    values = _decode_ints(cursor, runs, _IN_RUNS, target)
    _check_lengths(lengths, length)
    cursor.charge(np.dtype(target).itemsize * length)
    repeated: npt.NDArray[Any] = np.repeat(values, lengths)
    return repeated


def _check_lengths(lengths: npt.NDArray[np.int64], expected: int) -> None:
    fits = len(lengths) == 0 or (int(lengths.min()) >= 0 and int(lengths.max()) <= expected)
    if not fits or total(lengths) != expected:
        raise ValueError(f"lengths do not add up to {expected}")


def _decode_wrapped_ints(
    cursor: _Cursor, node: Node, dtype: pa.DataType, validity: pa.Buffer | None
) -> pa.Array:
    if pt.is_decimal128(dtype):
        values = _int_body(cursor, node, np.uint64).view(np.int64)
        cursor.charge(16 * len(values))
        words = np.empty((len(values), 2), dtype=np.int64)
        words[:, 0] = values
        words[:, 1] = values >> 63
        data = words.reshape(-1)
    elif (patterns := float_words(dtype)) is not None:
        data = _int_body(cursor, node, patterns)
        native.floats.order(data, data)
    elif (integers := int_dtype(dtype)) is not None:
        data = _int_body(cursor, node, _unsigned(integers))
    else:
        raise ValueError(f"encoding {node.encoding.name} does not go with type {dtype}")
    array = pa.Array.from_buffers(
        dtype, node.length, [validity, pa.py_buffer(data)], node.null_count
    )
    return _within_precision(array)


def _unsigned(dtype: type[Any]) -> Any:
    return np.dtype(f"u{np.dtype(dtype).itemsize}")


def _within_precision(array: pa.Array) -> pa.Array:
    """Checks that small decimals have no more digits than their type; others could not be compared."""
    if pt.is_decimal(array.type) and array.type.bit_width <= 64:
        array.validate(full=True)
    return array


# --- other leaves ---------------------------------------------------------------------------


def _decode_plain(
    cursor: _Cursor, node: Node, dtype: pa.DataType, validity: pa.Buffer | None
) -> pa.Array:
    if pt.is_boolean(dtype):
        data = cursor.buffer((node.length + 7) // 8)
    else:
        width = fixed_width_bytes(dtype)
        if width is None or node.param != width:
            raise ValueError(f"PLAIN values of {node.param} bytes for type {dtype}")
        data = cursor.buffer(node.length * width)
    array = pa.Array.from_buffers(dtype, node.length, [validity, data], node.null_count)
    return _within_precision(array)


def _decode_decimals(cursor: _Cursor, node: Node, validity: pa.Buffer | None) -> pa.Array:
    digits, count = node.param & 0xFF, node.param >> 8
    if digits > _MAX_DIGITS or not 0 <= count <= node.length:
        raise ValueError("decimals of impossible digits, or more others than values")
    rows = np.frombuffer(cursor.buffer(4 * count), dtype=np.uint32)
    others = np.frombuffer(cursor.buffer(8 * count), dtype=np.float64)
    if count and (int(rows[-1]) >= node.length or not (rows[:-1] < rows[1:]).all()):
        raise ValueError("doubles lie beyond the values or not in their order")
    integers = _decode_int64(cursor, node.length)
    cursor.charge(8 * node.length)
    values = np.empty(node.length, dtype=np.float64)
    if not native.floats.from_integers(integers, digits, values):
        raise ValueError("a decimal of more digits than a double has")
    values[rows] = others
    return pa.Array.from_buffers(
        pa.float64(), node.length, [validity, pa.py_buffer(values)], node.null_count
    )


def _decode_varlen(
    cursor: _Cursor, node: Node, dtype: pa.DataType, validity: pa.Buffer | None
) -> pa.Array:
    data = cursor.buffer(node.param)
    lengths = _decode_int64(cursor, node.length)
    offsets = _offsets(cursor, lengths, node.param, large=is_large_offsets(dtype))
    array = pa.Array.from_buffers(dtype, node.length, [validity, offsets, data], node.null_count)
    if pt.is_string(dtype) or pt.is_large_string(dtype):
        array.validate(full=True)  # callers rely on valid UTF-8
    return array


def _offsets(
    cursor: _Cursor, lengths: npt.NDArray[np.int64], size: int, *, large: bool
) -> pa.Buffer:
    cursor.charge((8 if large else 4) * len(lengths))
    if not large and size > _MAX_OFFSET_32:
        raise ValueError(f"{size} bytes or elements in one chunk exceed 32-bit offsets")
    offsets = np.empty(len(lengths) + 1, dtype=np.int64 if large else np.int32)
    native.integers.as_offsets(lengths, size, offsets)
    return pa.py_buffer(offsets)


def _decode_dictionary(
    cursor: _Cursor, node: Node, dtype: pa.DataType, validity: pa.Buffer | None, *, keep: bool
) -> pa.Array:
    wide_codes = _decode_int64(cursor, node.length)
    count = cursor.peek_length()
    if count > node.length:
        raise ValueError("a dictionary with more entries than values")
    if cursor.peek_encoding() is Encoding.DICTIONARY:
        raise ValueError("a dictionary of dictionaries")
    values = _decode(cursor, dtype, count)
    if values.null_count:
        raise ValueError("a null in a dictionary")
    cursor.charge(4 * node.length)
    codes = np.empty(node.length, dtype=np.int32)
    native.integers.as_codes(wide_codes, count, codes)
    indices = pa.Array.from_buffers(
        pa.int32(), node.length, [validity, pa.py_buffer(codes)], node.null_count
    )
    valid = valid_mask(indices)
    present = codes if valid is None else codes[valid]  # values under nulls are not made
    by_value = np.diff(cumulative_bytes(values))
    if keep and may_stay_coded(dtype):
        if len(by_value) and int(by_value.max()) * len(present) > _LITTLE_BYTES:
            cursor.allow(total(by_value[present]))
        return pa.DictionaryArray.from_arrays(indices, values, safe=False)
    # The figure is exact, because rough ones of many fields would add up to a refusal.
    cursor.charge(total(by_value[present]) if len(by_value) else 0)
    return decoded(pa.DictionaryArray.from_arrays(indices, values, safe=False))


def _decode_nested(
    cursor: _Cursor, node: Node, dtype: pa.DataType, validity: pa.Buffer | None
) -> pa.Array:
    if node.encoding is Encoding.LIST and (is_list_like(dtype) or pt.is_map(dtype)):
        counts = _decode_int64(cursor, node.length)
        elements = cursor.peek_length()
        offsets = _offsets(cursor, counts, elements, large=is_large_offsets(dtype))
        entry = (
            pa.struct([dtype.key_field, dtype.item_field]) if pt.is_map(dtype) else dtype.value_type
        )
        items = _decode(cursor, entry, elements)
        if pt.is_map(dtype) and (items.null_count or items.field(0).null_count):
            raise ValueError("a map has an entry or a key that is null")
        return pa.Array.from_buffers(
            dtype, node.length, [validity, offsets], node.null_count, children=[items]
        )
    if node.encoding is Encoding.FIXED_LIST and pt.is_fixed_size_list(dtype):
        items = _decode(cursor, dtype.value_type, node.length * dtype.list_size)
        return pa.Array.from_buffers(
            dtype, node.length, [validity], node.null_count, children=[items]
        )
    if node.encoding is Encoding.STRUCT and pt.is_struct(dtype):
        children = [_decode(cursor, field.type, node.length) for field in dtype.fields]
        return pa.Array.from_buffers(
            dtype, node.length, [validity], node.null_count, children=children
        )
    raise ValueError(f"encoding {node.encoding.name} does not go with type {dtype}")
