from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MAX_WORD_BYTES: Final[int]
MAX_WORDS: Final[int]
FIRST_WORD: Final[int]

def encode(
    offsets: npt.NDArray[Any], data: npt.NDArray[np.uint8], max_numbers: int
) -> tuple[pa.Buffer, npt.NDArray[np.int32], npt.NDArray[np.uint8], bytes] | None: ...
def measure(
    numbers: npt.NDArray[np.uint8],
    ends: npt.NDArray[np.int32],
    lengths: npt.NDArray[np.uint8],
    offsets: npt.NDArray[Any],
) -> tuple[int, bool]: ...
def expand(
    numbers: npt.NDArray[np.uint8],
    lengths: npt.NDArray[np.uint8],
    text: npt.NDArray[np.uint8],
    size: int,
) -> pa.Buffer: ...
