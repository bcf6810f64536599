"""Estimates how many keys several fragments have together, as if each drew its keys from one pool. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

_STEPS: Final = 100
_MAX_POOL: Final = 1e15
"""Fragments that draw from a larger pool share no key, by and large."""


def rows_of_keys(rows: Sequence[int], pool: float) -> float:
    """Returns the expected number of different keys. rows: those of each fragment, all of different keys."""
    if pool >= _MAX_POOL:
        return float(sum(rows))
    if any(count >= pool for count in rows):
        return float(max(rows))
    return -pool * math.expm1(sum(math.log1p(-count / pool) for count in rows))


def key_pool(fragments: int, rows_in: int, rows_out: int) -> float:
    """Returns the size of the pool for which fragments of equal size would merge into that many rows.

    Infinity stands for fragments that share no key.
    """
    if rows_out >= rows_in or fragments < 2:
        return math.inf
    each = rows_in / fragments
    if rows_out <= each:
        return float(rows_out)
    low, high = each, _MAX_POOL
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        if middle <= each:
            break
        found = -middle * math.expm1(fragments * math.log1p(-each / middle))
        low, high = (middle, high) if found < rows_out else (low, middle)
    return high
