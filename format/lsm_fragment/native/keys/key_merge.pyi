import enum

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
U16 = npt.NDArray[np.uint16]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

class State(enum.IntEnum):
    SLICE = 0
    GATE = 1
    ENDED = 2

class Stop(enum.IntEnum):
    DONE = 0
    FULL = 1
    NEEDS_SLICE = 2
    AT_GATE = 3
    DISORDER = 4
    TOO_MANY = 5

def place(
    cursors: I64,
    number: int,
    state: int,
    keys: U8,
    offsets: I64,
    width: int,
    codes: U64,
    row_bytes: int,
    more_bytes: int,
) -> None: ...
def refer_to_previous(keys: U8, offsets: I64, width: int, codes: U64) -> None: ...
def build(cursors: I64, losers: I32, codes: U64) -> None: ...
def enter(cursors: I64, losers: I32, codes: U64, number: int, before: bytes) -> None: ...
def runner_up(cursors: I64, losers: I32) -> int: ...
def merge(
    cursors: I64,
    losers: I32,
    codes: U64,
    before: bytes,
    widths: I64,
    flips: U8,
    progress: I64,
    origins: U16,
    starts: U8,
    row_bytes: I64,
) -> int: ...
