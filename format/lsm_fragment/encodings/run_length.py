"""RUN_LENGTH: integers as the lengths and values of runs."""

from __future__ import annotations

import numpy as np

from lsm_fragment.encodings.integers import IntArray, encode_ints
from lsm_fragment.encodings.node import Encoding, Node


def encode_runs(values: IntArray) -> Node:
    changes = np.flatnonzero(values[1:] != values[:-1])
    starts = np.concatenate(([0], changes + 1))
    lengths = np.diff(np.append(starts, len(values)))
    children = (
        encode_ints(lengths, allow_runs=False),
        encode_ints(values[starts], allow_runs=False),
    )
    return Node(Encoding.RUN_LENGTH, len(values), children=children)
