from typing import Any

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
Patterns = npt.NDArray[Any]
I64 = npt.NDArray[np.int64]

def find_digits(values: Doubles, max_exceptions: int) -> int: ...
def to_integers(
    values: Doubles, digits: int, out: I64, exceptions: npt.NDArray[np.uint32]
) -> int: ...
def order(patterns: Patterns, out: Patterns) -> None: ...
