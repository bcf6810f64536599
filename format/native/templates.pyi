from typing import Any

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Offsets = npt.NDArray[Any]

def split(
    offsets: Offsets,
    data: U8,
    valid: U8 | None,
    first_bit: int,
    most: int,
    codes: I32,
    ends: I32,
    variables: U8,
) -> tuple[bytes, bytes] | None: ...
def count_marks(data: U8) -> int: ...
def find_marks(offsets: I64, data: U8, firsts: I64, places: I64, kinds: U8) -> None: ...
def join_lengths(
    template_offsets: I64,
    templates: U8,
    firsts: I64,
    places: I64,
    kinds: U8,
    codes: I32,
    ends: I32,
    variables: U8,
    valid: U8 | None,
    first_bit: int,
    out: I64,
) -> int: ...
def join(
    template_offsets: I64,
    templates: U8,
    firsts: I64,
    places: I64,
    kinds: U8,
    codes: I32,
    ends: I32,
    variables: U8,
    valid: U8 | None,
    first_bit: int,
    offsets: Offsets,
    out: U8,
) -> None: ...
def add_hashes(
    template_offsets: I64,
    templates: U8,
    firsts: I64,
    places: I64,
    kinds: U8,
    codes: I32,
    ends: I32,
    variables: U8,
    valid: U8 | None,
    first_bit: int,
    seed: int,
    out: U64,
) -> None: ...
def extremes(
    template_offsets: I64,
    templates: U8,
    firsts: I64,
    places: I64,
    kinds: U8,
    codes: I32,
    ends: I32,
    variables: U8,
    valid: U8 | None,
    first_bit: int,
    between: I64,
) -> tuple[int, int]: ...
