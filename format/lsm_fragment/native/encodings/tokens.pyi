from typing import Any

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]
U64 = npt.NDArray[np.uint64]

def divide(
    offsets: npt.NDArray[Any],
    data: U8,
    valid: U8 | None,
    first_bit: int,
    max_templates: int,
    bits: U64,
    shapes: U64,
    places: U64,
    codes: I32,
    number_ends: I32,
    numbers: U8,
    text_ends: I32,
    texts: U8,
) -> tuple[bytes, bytes, bytes] | None: ...
