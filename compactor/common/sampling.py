"""Picks a sample of a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def evenly(items: Sequence[T], max_items: int) -> list[T]:
    """Returns at most `max_items` items, spread evenly over all."""
    if len(items) <= max_items:
        return list(items)
    places = np.unique(np.linspace(0, len(items) - 1, max_items).round().astype(int))
    return [items[place] for place in places.tolist()]
