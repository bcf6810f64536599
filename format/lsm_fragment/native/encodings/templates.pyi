from typing import Any

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Offsets = npt.NDArray[Any]
Layout = tuple[I64, U8, I64, I64, U8]
"""`lsm_fragment.arrays.templated.Layout`, or the first fields of `TemplatedRows`."""
Rows = tuple[*Layout, I32, I32, U8, I32, U8, U8 | None, int]
"""`lsm_fragment.arrays.templated.TemplatedRows`."""

def count_marks(data: U8) -> int: ...
def count_slots(offsets: Offsets, data: U8, numbers: I32, texts: I32) -> tuple[int, int]: ...
def find_marks(offsets: I64, data: U8, firsts: I64, places: I64, kinds: U8) -> None: ...
def find_ends(
    number_slots: I32,
    text_slots: I32,
    codes: I32,
    valid: U8 | None,
    first_bit: int,
    numbers: U8,
    texts: U8,
    number_ends: I32,
    text_ends: I32,
    characters: U8 | None,
) -> bool: ...
def max_bytes(
    template_offsets: Offsets,
    number_slots: I32,
    text_slots: I32,
    codes: I32,
    number_ends: I32,
    text_ends: I32,
    valid: U8 | None,
    first_bit: int,
) -> int: ...

# Further operands: `out`.
def join_lengths(*operands: *tuple[*Rows, I64]) -> int: ...

# Further operands: `offsets` and `out`.
def join(*operands: *tuple[*Rows, Offsets, U8]) -> None: ...
def join_stored(
    template_offsets: I64,
    templates: U8,
    firsts: I64,
    places: I64,
    kinds: U8,
    codes: I32,
    valid: U8 | None,
    first_bit: int,
    numbers: U8,
    texts: U8,
    chosen: U8 | None,
    offsets: Offsets,
    out: U8,
) -> bool: ...
def max_stored_bytes(
    template_offsets: I64,
    templates: U8,
    firsts: I64,
    places: I64,
    kinds: U8,
    codes: I32,
    valid: U8 | None,
    first_bit: int,
    number_bytes: int,
    text_bytes: int,
) -> int: ...

# Further operands: `seed`, `bits`, `contributions`, `alphabets` and `between`.
def survey(
    *operands: *tuple[*Rows, int, U64, U64, U64, I64],
) -> tuple[int, bytes | None, bytes | None]: ...
