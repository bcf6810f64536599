import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]

def join(parents: I64, left: I64, right: I64) -> None: ...
def label(parents: I64) -> None: ...
