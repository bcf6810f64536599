from typing import Any

import numpy as np
import numpy.typing as npt

class StringTable:
    count: int
    def __init__(self, max_count: int, max_bytes: int) -> None: ...
    @property
    def held_bytes(self) -> int: ...
    def number(
        self,
        offsets: npt.NDArray[Any],
        data: npt.NDArray[np.uint8],
        numbers: npt.NDArray[np.int32],
    ) -> bool: ...
