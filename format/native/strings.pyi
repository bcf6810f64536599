from typing import Any

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]
Offsets = npt.NDArray[Any]

def code_strings(
    offsets: Offsets, data: U8, valid: U8 | None, most: int, codes: I32, firsts: I32
) -> int: ...
def extreme_rows(offsets: Offsets, data: U8, valid: U8 | None) -> tuple[int, int]: ...
def offsets_by_code(codes: I32, valid: U8 | None, offsets: Offsets, out: Offsets) -> int: ...
def strings_by_code(codes: I32, offsets: Offsets, data: U8, placed: Offsets, out: U8) -> None: ...
