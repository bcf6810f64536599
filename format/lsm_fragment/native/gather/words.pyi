from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

TABLE_BYTES: Final[int]

class WordTable:
    @property
    def count(self) -> int: ...
    def listed(self, count: int) -> tuple[npt.NDArray[np.uint8], bytes]: ...
    def renumbered(
        self,
        numbers: npt.NDArray[np.uint8],
        ends: npt.NDArray[np.int32],
        text: npt.NDArray[np.uint8],
        word_ends: npt.NDArray[np.int32],
    ) -> tuple[pa.Buffer, npt.NDArray[np.int32], npt.NDArray[np.int32]] | None: ...
    def gathered(
        self,
        pieces: npt.NDArray[np.int64],
        firsts: npt.NDArray[np.int64],
        origins: npt.NDArray[np.uint16],
        size: int,
        max_numbers: int,
    ) -> tuple[
        pa.Buffer, tuple[pa.Buffer, npt.NDArray[np.int32], npt.NDArray[np.uint8], bytes] | None
    ]: ...
