from typing import Any

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
Offsets = npt.NDArray[Any]

def agrees(pieces: I64, firsts: I64, origins: U16) -> bool: ...
def fixed(pieces: I64, firsts: I64, origins: U16, width: int, out: U8) -> None: ...
def validity(pieces: I64, firsts: I64, origins: U16, out: U8) -> int: ...
def bits(pieces: I64, firsts: I64, origins: U16, out: U8) -> None: ...
def offsets(pieces: I64, firsts: I64, origins: U16, out: Offsets) -> int: ...
def strings(pieces: I64, firsts: I64, origins: U16, placed: Offsets, out: U8) -> None: ...
def codes(
    pieces: I64,
    firsts: I64,
    origins: U16,
    like: Offsets,
    most: int,
    table: npt.NDArray[np.uint64],
    memo: I32,
    out: I32,
    used: I64,
) -> int: ...
def used_offsets(pieces: I64, used: I64, out: Offsets) -> int: ...
def used_strings(pieces: I64, used: I64, placed: Offsets, out: U8) -> None: ...
