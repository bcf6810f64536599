from typing import Any

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]
Offsets = npt.NDArray[Any]

def hash_spots(offsets: Offsets, data: U8, keys: U64, out: U64) -> None: ...
def hash_words(offsets: Offsets, data: U8, keys: U64, most: int, out: U64) -> None: ...
