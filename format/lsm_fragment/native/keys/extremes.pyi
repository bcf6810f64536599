from typing import Any

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
Numbers = npt.NDArray[Any]
Offsets = npt.NDArray[Any]
Words = npt.NDArray[np.uint64]
Rows = tuple[int, int]

def extreme_numbers(values: Numbers, valid: U8 | None, start: int) -> tuple[Any, Any] | None: ...
def extreme_wide(values: Words, valid: U8 | None, start: int) -> Rows: ...
def extreme_bytes(values: U8, valid: U8 | None, start: int) -> Rows: ...
def extreme_strings(offsets: Offsets, data: U8, valid: U8 | None, start: int) -> Rows: ...
