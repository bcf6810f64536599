"""CONSTANT: one integer for all values."""

from __future__ import annotations

from lsm_fragment.encodings.node import Encoding, Node
from lsm_fragment.encodings.reading import NodeShape, decode_integers, integers_fit

ENCODING = Encoding.CONSTANT
SHAPE = NodeShape(has_param=True)
fits, decode = integers_fit, decode_integers


def encode_constant(length: int, value: int = 0) -> Node:
    return Node(encoding=Encoding.CONSTANT, length=length, param=value)
