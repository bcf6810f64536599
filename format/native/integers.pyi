from typing import Any

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
I32 = npt.NDArray[np.int32]
Integers = npt.NDArray[Any]

def renumber(codes: I32, valid: U8 | None, new_code: I32, used: I32, out: I32) -> int: ...
def statistics(values: Integers) -> tuple[int, int, int, int, int]: ...
def narrow(values: Integers, base: int, out: Integers) -> None: ...
