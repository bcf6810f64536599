from typing import Any

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

def look(offsets: npt.NDArray[Any], data: U8, rows: I64) -> tuple[bytes, bytes, bytes, bytes]: ...
def choose(
    rows: I64,
    bounds: I64,
    firsts: I64,
    contents: U64,
    lengths: U8,
    sizes: I64,
    scale: float,
    places: U64,
) -> None: ...
def words_in(offsets: npt.NDArray[Any], data: U8, shapes: U64, places: U64) -> None: ...
def may_be(
    template_offsets: I64, templates: U8, value_offsets: I64, values: U8, out: U8
) -> None: ...
