"""A truncated set of texts: it may have false positives, never false negatives.

It is a trie of all values, cut at a depth in bytes; below the cut any text matches. The idea comes from the
trimmed automata by which Datadog's Husky describes the values of a fragment. If all values fit, nothing is
cut, and even `LIKE '%x%'` is decided exactly.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import pyarrow as pa

from compactor.predicate.like import literal_prefix
from compactor.predicate.tree import Like, matching
from lsm_fragment import compute as pc

_HEAD: Final = struct.Struct("<III")
"""Bytes of each cut value (0 if none is cut), number of whole values, number of cut values."""
_LENGTHS: Final = (256, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)


def build(values: pa.Array, max_bytes: int) -> bytes | None:
    """Builds the set of distinct non-null texts; returns None if even one byte of each does not fit."""
    values = values.cast(pa.large_string()).cast(pa.large_binary())
    lengths = pc.binary_length(values)
    if _size(values) <= max_bytes:
        return _packed(0, values, values.slice(0, 0))
    for length in _LENGTHS:
        is_whole = pc.less_equal(lengths, length)
        whole = values.filter(is_whole)
        cut = pc.binary_slice(values.filter(pc.invert(is_whole)), 0, length).unique()
        if _size(whole) + _size(cut) <= max_bytes:
            return _packed(length, whole, cut)
    return None


class ValueSet:
    """A parsed value set."""

    def __init__(self, data: bytes) -> None:
        """Raises ValueError for invalid bytes."""
        if len(data) < _HEAD.size:
            raise ValueError(f"a value set of {len(data)} bytes")
        self._length, whole, cut = _HEAD.unpack_from(data)
        if whole + cut > (len(data) - _HEAD.size) // 4:
            raise ValueError(f"{whole + cut} values in {len(data)} bytes")
        sizes = np.frombuffer(data, "<u4", whole + cut, _HEAD.size)
        if int(sizes.sum(dtype=np.int64)) != len(data) - _HEAD.size - 4 * len(sizes):
            raise ValueError("values of other lengths than their set")
        ends = np.cumsum(sizes, dtype=np.int64) + _HEAD.size + 4 * (whole + cut)
        parts = [data[int(end - size) : int(end)] for end, size in zip(ends, sizes, strict=True)]
        self._whole = frozenset(parts[:whole])
        for part in self._whole:
            part.decode()  # Its error is a ValueError.
        self._cut = frozenset(parts[whole:])

    def may_equal(self, value: pa.Scalar) -> bool:
        """Returns whether any row may have this value."""
        return self._may_be(value.as_py())

    def may_be_in(self, values: pa.Array) -> bool:
        """Returns whether any row may have one of these values."""
        return any(map(self._may_be, values.to_pylist()))

    def may_be_like(self, pattern: str, *, ignores_case: bool) -> bool:
        """Returns whether any row may match a LIKE pattern."""
        texts = pa.array(sorted(self._whole), pa.binary()).cast(pa.string())
        like = Like("", pattern, ignores_case)
        if len(texts) and pc.any(matching(like, {"": texts}, len(texts))).as_py():
            return True
        if ignores_case:
            return bool(self._cut)
        prefix = literal_prefix(pattern).encode()
        return any(
            part.startswith(prefix) if len(prefix) <= len(part) else prefix.startswith(part)
            for part in self._cut
        )

    def _may_be(self, text: str) -> bool:
        data = text.encode()
        if data in self._whole:
            return True
        return len(data) > self._length and data[: self._length] in self._cut


def _size(values: pa.Array) -> int:
    """Returns the packed size of values in bytes."""
    return _HEAD.size + 4 * len(values) + int(pc.sum(pc.binary_length(values)).as_py() or 0)


def _packed(length: int, whole: pa.Array, cut: pa.Array) -> bytes:
    sizes = pc.binary_length(pa.concat_arrays([whole, cut])).to_numpy().astype("<u4")
    parts: list[bytes] = [*whole.to_pylist(), *cut.to_pylist()]
    head: bytes = _HEAD.pack(length, len(whole), len(cut)) + sizes.tobytes()
    return head + b"".join(parts)
