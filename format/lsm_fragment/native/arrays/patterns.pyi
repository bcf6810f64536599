from typing import Any

import numpy as np
import numpy.typing as npt

def contain(
    offsets: npt.NDArray[Any],
    data: npt.NDArray[np.uint8],
    needle: npt.NDArray[np.uint8],
    out: npt.NDArray[np.uint8],
) -> None: ...
def hold(
    codes: npt.NDArray[np.int32], holds: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8]
) -> None: ...
def reach(
    offsets: npt.NDArray[np.int64],
    data: npt.NDArray[np.uint8],
    firsts: npt.NDArray[np.int64],
    places: npt.NDArray[np.int64],
    kinds: npt.NDArray[np.uint8],
    alphabets: npt.NDArray[np.uint64],
    distinctive: int,
    steps: npt.NDArray[np.uint64],
    loops: npt.NDArray[np.uint64],
    letter_steps: npt.NDArray[np.uint64],
    letter_loops: npt.NDArray[np.uint64],
    last: int,
    anything: npt.NDArray[Any] | None,
    out: npt.NDArray[np.uint8],
) -> None: ...
