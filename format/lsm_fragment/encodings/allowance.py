"""Bounds the memory that decoding a hostile chunk may take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from lsm_fragment.arrays.moves import list_parts
from lsm_fragment.arrays.sizes import heaviest_value_bytes, total_bytes
from lsm_fragment.arrays.types import is_binary_like, is_list_like
from lsm_fragment.limits import KEPT_RATIO, too_large

ANY_VALUES: Final = 2**62
"""Values that a cursor may have at most, for callers that do not bound them."""
_UNRESERVED_BYTES: Final = 16 << 10
"""Allocate up to this size without calling `reserve`."""
_UNCHECKED_BYTES: Final = 64 << 20
"""Do not compute the expanded size of a kept dictionary that cannot exceed this."""
_LENGTH_BYTES: Final = 4
_SMALL_VALUES_BYTES: Final = 1024
"""Take the total size as the bound of one value up to this size, rather than look for the heaviest."""


def charge_nothing(_size: int) -> None:
    """Allows any size, for callers that allocate nothing."""


class Allowance:
    """The memory budget of one chunk."""

    def __init__(self, max_bytes: int, reserve: Callable[[int], None] | None) -> None:
        self._max_bytes = max_bytes
        self._reserve = reserve
        self.charged_bytes = 0

    def charge(self, size: int) -> None:
        """Counts `size` bytes before they are allocated. Raises `ValueError` above the chunk's limit."""
        self.charged_bytes += size
        if self.charged_bytes > self._max_bytes:
            raise ValueError(too_large(self.charged_bytes, self._max_bytes))
        if self._reserve is not None and size > _UNRESERVED_BYTES:
            self._reserve(size)

    def check_kept(self, size: int) -> None:
        """Checks the expanded size of a kept dictionary or of kept templates.

        Raises `ValueError` above `KEPT_RATIO` times the chunk's limit.
        """
        if size > KEPT_RATIO * self._max_bytes:
            raise ValueError(too_large(size, KEPT_RATIO * self._max_bytes))


def may_be_large(values: pa.Array, length: int) -> bool:
    """Returns whether `length` rows of a dictionary's values, or of templates without their variables, may
    take more than `_UNCHECKED_BYTES`."""
    if is_binary_like(values.type) and length * values.get_total_buffer_size() <= _UNCHECKED_BYTES:
        return False  # fast path for most dictionaries: skips the look at each string
    return length * _max_value_bytes(values) > _UNCHECKED_BYTES


def _max_value_bytes(values: pa.Array) -> int:
    """Returns an upper bound of the size of one value."""
    if is_list_like(values.type):  # the heaviest items and the longest list, not each list
        counts, items = list_parts(values)
        return _LENGTH_BYTES + int(counts.max(initial=0)) * max(1, _max_value_bytes(items))
    size = total_bytes(values)
    return size if size <= _SMALL_VALUES_BYTES else heaviest_value_bytes(values)
