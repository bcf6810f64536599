"""DECIMAL: doubles that are decimals of few digits, as integers, but for some exceptions (the idea is
ALP's)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment import native
from lsm_fragment.encodings.integers import encode_ints
from lsm_fragment.encodings.node import Encoding, Node
from lsm_fragment.encodings.packed import Survey, sampled, survey

_OTHERS_SHARE: Final = 32
"""One of so many doubles may be no decimal of few digits."""
_OTHER_BITS: Final = 96
"""What a double that is none takes: its row and itself."""


def encode_decimals(words: npt.NDArray[Any], dtype: pa.DataType, seen: Survey) -> Node | None:
    """Encodes doubles that are decimals of few digits as integers, but for some; None if that takes no less
    (the idea is ALP's)."""
    if not pt.is_float64(dtype):
        return None
    values = words.view(np.float64)
    sample = sampled(values)
    digits = native.encodings.floats.find_digits(sample, len(sample) // _OTHERS_SHARE)
    if digits < 0:
        return None
    others = np.empty(len(values) // _OTHERS_SHARE, dtype=np.uint32)
    integers = np.empty(len(values), dtype=np.int64)
    count = native.encodings.floats.to_integers(values, digits, integers, others)
    if count < 0:
        return None
    of_integers = survey(sampled(integers))
    if of_integers.bits + _OTHER_BITS * count / len(values) >= seen.bits:
        return None
    rows = others[:count]
    return Node(
        Encoding.DECIMAL,
        len(values),
        param=digits | count << 8,
        buffers=(rows, values[rows]),
        children=(encode_ints(integers),),
        is_dense=True,
    )
