"""Copies bytes into memory that Arrow owns.

Arrow's read-ahead threads may release the last reference to their source after it is closed. If the source is
a Python object and the interpreter is shutting down, the process aborts.
"""

from __future__ import annotations

import pyarrow as pa


def native_reader(*parts: bytes) -> pa.BufferReader:
    """Returns a reader of the concatenated parts that references no Python object."""
    buffer = pa.allocate_buffer(sum(map(len, parts)))
    at = 0
    with memoryview(buffer).cast("B") as room:
        for part in parts:
            room[at : at + len(part)] = part
            at += len(part)
    return pa.BufferReader(buffer)
