import numpy as np
import numpy.typing as npt

_Offsets = npt.NDArray[np.int32]
_Bytes = npt.NDArray[np.uint8]

def cut(
    data: bytes | npt.NDArray[np.uint8],
    columns: int,
    takes_blank: bool,
    is_last: bool,
    max_bytes: int,
    marks: tuple[int, int, int] = ...,
) -> tuple[_Offsets, _Offsets, _Bytes, list[tuple[int, int, int, int]], int, int, bool, bool]: ...
def column(
    data: bytes | npt.NDArray[np.uint8],
    starts: _Offsets,
    stops: _Offsets,
    forms: _Bytes,
    place: int,
    columns: int,
    quote: int = ...,
) -> tuple[_Offsets, _Bytes, _Bytes]: ...
