"""Gives Arrow bytes in memory of its own.

Arrow's threads that read ahead may let go of their source last, after it was closed. If that is an object of
Python's, and the interpreter ends at that moment, the process aborts.
"""

from __future__ import annotations

import pyarrow as pa


def native_reader(*parts: bytes) -> pa.BufferReader:
    """Returns a source of the parts, one after the other, that holds no object of Python's."""
    buffer = pa.allocate_buffer(sum(map(len, parts)))
    at = 0
    with memoryview(buffer).cast("B") as room:
        for part in parts:
            room[at : at + len(part)] = part
            at += len(part)
    return pa.BufferReader(buffer)
