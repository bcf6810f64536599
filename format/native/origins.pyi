from typing import Any

import numpy as np
import numpy.typing as npt

U16 = npt.NDArray[np.uint16]
Places = npt.NDArray[Any]

def count(origins: U16, counts: npt.NDArray[np.int64]) -> int: ...
def divide(origins: U16, sources: U16, lengths: npt.NDArray[np.uint32]) -> None: ...
def renumber(origins: U16, places: Places, out: Places) -> None: ...
