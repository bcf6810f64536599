from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

ALPHABET_BYTES: Final[int]

def find_alphabet(data: npt.NDArray[np.uint8]) -> bytes | None: ...
def pack(data: npt.NDArray[np.uint8], alphabet: bytes, out: npt.NDArray[np.uint8]) -> bool: ...
def unpack(codes: pa.Buffer, alphabet: pa.Buffer, size: int, is_text: bool) -> pa.Buffer: ...
