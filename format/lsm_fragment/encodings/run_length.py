"""RUN_LENGTH: integers as the lengths and values of runs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lsm_fragment.encodings.node import Encoding, IntArray, Node
from lsm_fragment.encodings.reading import NodeShape, decode_integers, integers_fit

ENCODING = Encoding.RUN_LENGTH
SHAPE = NodeShape(children=2)
fits, decode = integers_fit, decode_integers


def encode_runs(values: IntArray, ints: Callable[[IntArray], Node]) -> Node:
    """Encodes integers as runs. ints: an encoder that uses no runs."""
    changes = np.flatnonzero(values[1:] != values[:-1])
    starts = np.concatenate(([0], changes + 1))
    lengths = np.diff(np.append(starts, len(values)))
    children = (
        ints(lengths),
        ints(values[starts]),
    )
    return Node(encoding=Encoding.RUN_LENGTH, length=len(values), children=children)
