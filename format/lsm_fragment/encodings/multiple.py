"""MULTIPLE: multiples of one number, such as milliseconds in nanoseconds, as their quotients."""

from __future__ import annotations

from typing import Final

import numpy as np

from lsm_fragment import native
from lsm_fragment.encodings.integers import IntArray, encode_surveyed
from lsm_fragment.encodings.node import Encoding, Node
from lsm_fragment.encodings.packed import sampled, survey

_MIN_FACTOR: Final = 8
"""The least common factor that is worth a division of all values: it saves three bits of each."""
_FACTOR_PROBES: Final = 256
"""The values that are asked for a common factor before all are."""


def encode_multiples(values: IntArray, sample: IntArray) -> Node | None:
    """Encodes multiples of one number, such as milliseconds in nanoseconds, as their quotients."""
    probes = np.ascontiguousarray(sample[:: max(1, len(sample) // _FACTOR_PROBES)])
    factor = native.arrays.integers.common_factor(probes, _MIN_FACTOR)
    if not _MIN_FACTOR <= factor < 1 << 63:
        return None
    quotients = np.empty(len(values), dtype=np.int64)
    if not native.arrays.integers.divide(values, factor, quotients):
        return None
    seen_quotients = sampled(quotients)
    child = encode_surveyed(quotients, seen_quotients, survey(seen_quotients), allow_runs=False)
    return Node(Encoding.MULTIPLE, len(values), param=factor, children=(child,))
