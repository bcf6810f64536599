"""Bounds the memory that decoding a hostile chunk may take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from lsm_fragment.arrays.sizes import heaviest_value_bytes, total_bytes
from lsm_fragment.arrays.types import is_binary_like
from lsm_fragment.limits import KEPT_RATIO, too_large

_SMALL_BYTES: Final = 16 << 10
"""The most bytes that are allocated without asking `reserve`."""
_LITTLE_BYTES: Final = 64 << 20
"""The most bytes for which a kept dictionary's values are not counted."""
_FEW_BYTES: Final = 1024


def charge_nothing(_size: int) -> None:
    """Allows all memory, where none is taken."""


class Allowance:
    """The memory that a chunk may take."""

    def __init__(self, max_bytes: int, reserve: Callable[[int], None] | None) -> None:
        self._max_bytes = max_bytes
        self._reserve = reserve
        self.charged_bytes = 0

    def charge(self, size: int) -> None:
        """Counts memory before it is allocated. Raises `ValueError` if it is too much for the payload."""
        self.charged_bytes += size
        if self.charged_bytes > self._max_bytes:
            raise ValueError(too_large(self.charged_bytes, self._max_bytes))
        if self._reserve is not None and size > _SMALL_BYTES:
            self._reserve(size)

    def check_kept(self, size: int) -> None:
        """Checks the size of the values that a kept dictionary, or kept templates, stand for.

        Raises `ValueError` if it is too much for the payload.
        """
        if size > KEPT_RATIO * self._max_bytes:
            raise ValueError(too_large(size, KEPT_RATIO * self._max_bytes))


def may_be_large(values: pa.Array, length: int) -> bool:
    """Returns whether `length` rows of a dictionary's values, or of templates without their variables, may
    take more than `_LITTLE_BYTES`."""
    if is_binary_like(values.type) and length * values.get_total_buffer_size() <= _LITTLE_BYTES:
        return False  # as most dictionaries are, whose strings need not be looked at
    return length * _max_value_bytes(values) > _LITTLE_BYTES


def _max_value_bytes(values: pa.Array) -> int:
    """Returns a bound of the bytes of one value: of all where these are few, else of the heaviest."""
    size = total_bytes(values)
    return size if size <= _FEW_BYTES else heaviest_value_bytes(values)
