"""MULTIPLE: multiples of one number, such as milliseconds in nanoseconds, as their quotients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from lsm_fragment import native
from lsm_fragment.encodings.node import Encoding, IntArray, Node
from lsm_fragment.encodings.reading import NodeShape, decode_integers, integers_fit

ENCODING = Encoding.MULTIPLE
SHAPE = NodeShape(children=1, has_param=True)
fits, decode = integers_fit, decode_integers

_MIN_FACTOR: Final = 8
"""Divide all values only by a factor of at least 8: it saves 3 bits per value."""
_FACTOR_PROBES: Final = 256
"""Test about this many values for a common factor before testing all."""


def encode_multiples(
    values: IntArray, sample: IntArray, quotients_of: Callable[[IntArray], Node]
) -> Node | None:
    """Encodes multiples of one number as their quotients; None if there is no common factor.

    quotients_of: an encoder that uses only CONSTANT or PACKED.
    """
    probes = np.ascontiguousarray(sample[:: max(1, len(sample) // _FACTOR_PROBES)])
    factor = native.arrays.integers.common_factor(probes, _MIN_FACTOR)
    if not _MIN_FACTOR <= factor < 1 << 63:
        return None
    quotients = np.empty(len(values), dtype=np.int64)
    if not native.arrays.integers.divide(values, factor, quotients):
        return None
    children = (quotients_of(quotients),)
    return Node(encoding=Encoding.MULTIPLE, length=len(values), param=factor, children=children)
