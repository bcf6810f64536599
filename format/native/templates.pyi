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
    bits: U64,
    codes: I32,
    number_ends: I32,
    numbers: U8,
    text_ends: I32,
    texts: U8,
) -> tuple[bytes, bytes, bytes] | None: ...
def count_marks(data: U8) -> int: ...
def find_marks(offsets: I64, data: U8, firsts: I64, places: I64, kinds: U8) -> None: ...
def find_ends(
    firsts: I64,
    kinds: U8,
    codes: I32,
    valid: U8 | None,
    first_bit: int,
    numbers: U8,
    texts: U8,
    number_ends: I32,
    text_ends: I32,
    characters: U8 | None,
) -> bool: ...
def most_bytes(
    template_offsets: I64,
    templates: U8,
    firsts: I64,
    places: I64,
    kinds: U8,
    codes: I32,
    number_ends: I32,
    numbers: U8,
    text_ends: I32,
    texts: U8,
    valid: U8 | None,
    first_bit: int,
) -> int: ...
def join_lengths(
    template_offsets: I64,
    templates: U8,
    firsts: I64,
    places: I64,
    kinds: U8,
    codes: I32,
    number_ends: I32,
    numbers: U8,
    text_ends: I32,
    texts: U8,
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
    number_ends: I32,
    numbers: U8,
    text_ends: I32,
    texts: U8,
    valid: U8 | None,
    first_bit: int,
    offsets: Offsets,
    out: U8,
) -> None: ...
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
def most_stored_bytes(
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
def survey(
    template_offsets: I64,
    templates: U8,
    firsts: I64,
    places: I64,
    kinds: U8,
    codes: I32,
    number_ends: I32,
    numbers: U8,
    text_ends: I32,
    texts: U8,
    valid: U8 | None,
    first_bit: int,
    seed: int,
    bits: U64,
    contributions: U64,
    alphabets: U64,
    between: I64,
) -> tuple[int, bytes | None, bytes | None]: ...
