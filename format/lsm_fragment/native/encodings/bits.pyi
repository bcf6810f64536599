from typing import Any, Final

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
Integers = npt.NDArray[Any]

BLOCK_VALUES: Final[int]
ENTRY_BYTES: Final[int]

def max_bytes(count: int) -> int: ...
def survey(values: Integers) -> tuple[int, int, int, int, int, int, int, int]: ...
def pack(
    values: Integers,
    min_width: int,
    tries_values: bool,
    tries_deltas: bool,
    entries: U8,
    data: U8,
) -> tuple[int, int]: ...
def pack_uniform(
    values: Integers, base: int, width: int, holds_deltas: bool, entries: U8, data: U8
) -> int: ...
def frequency_bits(data: U8) -> float: ...
