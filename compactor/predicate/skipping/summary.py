"""Builds and queries the summary of a column's values in one row group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyarrow import types as pt

from compactor.predicate.prune import Summary
from compactor.predicate.skipping import bloom
from compactor.predicate.skipping.spec import SkipKind, can_index
from compactor.predicate.skipping.value_set import ValueSet
from compactor.predicate.skipping.value_set import build as build_value_set
from lsm_fragment import compute as pc
from lsm_fragment.arrays.hashing import mix, value_hashes
from lsm_fragment.arrays.types import is_string, storage_type

_CODES: Final = {SkipKind.BLOOM: 1, SkipKind.VALUES: 2}
_HEAD_BYTES: Final = 2


def build(kind: SkipKind, array: pa.Array, max_bytes: int) -> bytes | None:
    """Summarises a storage array, possibly dictionary-coded; returns None if it would be useless."""
    # The column's type may have changed since its index was configured.
    if not can_index(kind, storage_type(array.type)):
        return None
    domain = _domain(array.type)
    head = bytes([_CODES[kind], len(domain)]) + domain
    body = _build(kind, array, max_bytes - len(head))
    return None if body is None else head + body


def _build(kind: SkipKind, array: pa.Array, max_bytes: int) -> bytes | None:
    if pt.is_null(array.type):
        array = pa.array([], pa.int64() if kind is SkipKind.BLOOM else pa.string())
    elif pt.is_dictionary(array.type):
        array = array.dictionary.take(pc.unique(array.indices.drop_null()))
    array = array.drop_null()
    if kind is SkipKind.BLOOM:
        return bloom.build(mix(value_hashes(array)), max_bytes)
    return build_value_set(array.unique(), max_bytes)


def summary_of(data: bytes, dtype: pa.DataType) -> Summary | None:
    """Parses a summary for lookups of a type; None if it was built from an incomparable type.

    Raises ValueError for invalid bytes.
    """
    if len(data) < _HEAD_BYTES or data[0] not in _CODES.values():
        raise ValueError("a skip index of an unknown kind")
    code, length = data[0], data[1]
    if data[_HEAD_BYTES : _HEAD_BYTES + length] not in (_domain(dtype), b""):
        return None
    body = data[_HEAD_BYTES + length :]
    if code == _CODES[SkipKind.VALUES]:
        return ValueSet(body)
    if not body or len(body) % bloom.BLOCK_BYTES:
        raise ValueError(f"a Bloom filter of {len(body)} bytes")
    return _Bloom(body)


def _domain(dtype: pa.DataType) -> bytes:
    """Returns the hash domain of a type: types whose equal values hash alike share one. Empty for null."""
    dtype = storage_type(dtype)
    if pt.is_null(dtype):
        return b""
    if pt.is_integer(dtype):
        return b"int"
    if pt.is_decimal(dtype):
        return f"decimal {dtype.scale}".encode()
    if is_string(dtype):
        return b"text"
    if pt.is_binary(dtype) or pt.is_large_binary(dtype):
        return b"bytes"
    return str(dtype).encode()


class AnyOf:
    """The combined summary of several row groups."""

    def __init__(self, parts: Sequence[Summary]) -> None:
        self._parts = parts

    def may_equal(self, value: pa.Scalar) -> bool:
        return any(part.may_equal(value) for part in self._parts)

    def may_be_in(self, values: pa.Array) -> bool:
        return any(part.may_be_in(values) for part in self._parts)

    def may_be_like(self, pattern: str, *, ignores_case: bool) -> bool:
        return any(part.may_be_like(pattern, ignores_case=ignores_case) for part in self._parts)


class _Bloom:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def may_equal(self, value: pa.Scalar) -> bool:
        return self.may_be_in(pa.array([value], value.type))

    def may_be_in(self, values: pa.Array) -> bool:
        hashes = mix(value_hashes(values))
        return bool(bloom.may_hold(self._data, hashes).any())

    def may_be_like(self, pattern: str, *, ignores_case: bool) -> bool:  # noqa: ARG002
        return True
