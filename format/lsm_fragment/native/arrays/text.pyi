from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

def is_ascii(data: pa.Buffer) -> bool: ...
def are_ascii(offsets: npt.NDArray[Any], data: npt.NDArray[np.uint8]) -> bool: ...
