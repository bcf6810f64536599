import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = pa.Buffer | npt.NDArray[np.int8] | None
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

def hash_integers(
    data: Bytes,
    width: int,
    is_signed: bool,
    validity: Bytes,
    start: int,
    seed: int | None,
    out: U64,
) -> None: ...
def hash_booleans(data: Bytes, validity: Bytes, start: int, seed: int | None, out: U64) -> None: ...
def hash_floats(
    data: Bytes, width: int, validity: Bytes, start: int, seed: int | None, out: U64
) -> None: ...
def hash_decimals(
    data: Bytes, width: int, validity: Bytes, start: int, seed: int | None, out: U64
) -> None: ...
def hash_bytes(
    data: Bytes, width: int, validity: Bytes, start: int, seed: int | None, out: U64
) -> None: ...
def put_hashes(hashes: U64, validity: Bytes, start: int, seed: int | None, out: U64) -> None: ...
def hash_strings(
    offsets: Bytes,
    data: Bytes,
    is_large: bool,
    validity: Bytes,
    start: int,
    seed: int | None,
    out: U64,
) -> None: ...
def hash_lists(
    counts: I64,
    items: U64,
    items_validity: Bytes,
    items_start: int,
    validity: Bytes,
    start: int,
    seed: int | None,
    out: U64,
) -> None: ...
def add_by_code(
    codes: Bytes, width: int, contributions: U64, validity: Bytes, start: int, out: U64
) -> None: ...
def mix(values: U64, out: U64) -> None: ...
def fold(numbers: U64) -> int: ...
