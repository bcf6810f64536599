from typing import Any

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]
Offsets = npt.NDArray[Any]

def code_strings(
    offsets: Offsets, data: U8, valid: U8 | None, most: int, codes: I32, firsts: I32
) -> int: ...
def longest(offsets: Offsets) -> int: ...
def hidden_bytes(offsets: Offsets, valid: U8 | None, start: int) -> int: ...
