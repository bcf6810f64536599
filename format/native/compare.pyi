from typing import Any

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]
Numbers = npt.NDArray[Any]
Offsets = npt.NDArray[Any]
Words = npt.NDArray[np.uint64]
Rows = tuple[int, int]

def extreme_numbers(values: Numbers, valid: U8 | None, start: int) -> tuple[Any, Any] | None: ...
def extreme_wide(values: Words, valid: U8 | None, start: int) -> Rows: ...
def extreme_bytes(values: U8, valid: U8 | None, start: int) -> Rows: ...
def extreme_strings(offsets: Offsets, data: U8, valid: U8 | None, start: int) -> Rows: ...
def disorder_of_numbers(
    values: Numbers,
    valid: U8 | None,
    start: int,
    descends: bool,
    nulls_first: bool,
    signs: U8,
    stop: int,
) -> int: ...
def disorder_of_wide(
    values: Words,
    valid: U8 | None,
    start: int,
    descends: bool,
    nulls_first: bool,
    signs: U8,
    stop: int,
) -> int: ...
def disorder_of_bytes(
    values: U8,
    valid: U8 | None,
    start: int,
    descends: bool,
    nulls_first: bool,
    signs: U8,
    stop: int,
) -> int: ...
def disorder_of_strings(
    codes: I32 | None,
    offsets: Offsets,
    data: U8,
    valid: U8 | None,
    start: int,
    descends: bool,
    nulls_first: bool,
    signs: U8,
    stop: int,
) -> int: ...
