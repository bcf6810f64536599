from typing import Any

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Offsets = npt.NDArray[Any]

def rows_of_templates(codes: I32, valid: U8 | None, first_bit: int, counts: I64) -> None: ...
def text_sizes(
    firsts: I64,
    kinds: U8,
    codes: I32,
    ends: I32,
    variables: U8,
    valid: U8 | None,
    first_bit: int,
    have_texts: U8,
    sizes: I64,
) -> None: ...
def scatter(
    firsts: I64,
    kinds: U8,
    codes: I32,
    ends: I32,
    variables: U8,
    valid: U8 | None,
    first_bit: int,
    places: I64,
    numbers: U64,
    texts: U8,
) -> None: ...
def alphabets(offsets: I64, texts: U8, bits: U64, out: U64) -> int: ...
def choose(starts: I64, numbers: U64, forms: U8, sizes: I64) -> tuple[int, int]: ...
def store(
    starts: I64,
    numbers: U64,
    kinds: U8,
    forms: U8,
    text_ends: I64,
    texts: U8,
    packed: U8,
    blocks: int,
    out: U8,
) -> int: ...
def take(
    kinds: U8,
    forms: U8,
    counts: I64,
    packed: U8,
    blocks: int,
    text_offsets: I64,
    texts: U8,
    for_rows: bool,
    numbers: U64,
    places: I64,
) -> int: ...
def by_rows(
    firsts: I64,
    kinds: U8,
    codes: I32,
    valid: U8 | None,
    first_bit: int,
    places: I64,
    numbers: U64,
    texts: U8,
    ends: I32,
    variables: U8,
) -> None: ...
def as_text(
    template_offsets: I64,
    templates: U8,
    firsts: I64,
    marks: I64,
    kinds: U8,
    codes: I32,
    valid: U8 | None,
    first_bit: int,
    chosen: U8 | None,
    places: I64,
    numbers: U64,
    texts: U8,
    offsets: Offsets,
    out: U8,
) -> None: ...
