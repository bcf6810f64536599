"""Takes some of many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def evenly(items: Sequence[T], most: int) -> list[T]:
    """Returns at most `most` items, spread evenly over all."""
    if len(items) <= most:
        return list(items)
    places = np.unique(np.linspace(0, len(items) - 1, most).round().astype(int))
    return [items[place] for place in places.tolist()]
