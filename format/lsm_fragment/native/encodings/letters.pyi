from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

MIN_FRAME_BYTES: Final[int]
MAX_FRAME_BYTES: Final[int]

def find_holes(data: npt.NDArray[np.uint8], length: int) -> bytearray: ...
def find_alphabet(data: npt.NDArray[np.uint8], holes: npt.NDArray[np.uint8]) -> bytes | None: ...
def pack(
    data: npt.NDArray[np.uint8], holes: npt.NDArray[np.uint8], alphabet: bytes, width: int
) -> pa.Buffer | None: ...
def unpack(
    codes: pa.Buffer,
    alphabet: pa.Buffer,
    width: int,
    count: int,
    holes: npt.NDArray[np.uint8],
    frame_bytes: npt.NDArray[np.uint8],
    is_text: bool,
) -> pa.Buffer: ...
