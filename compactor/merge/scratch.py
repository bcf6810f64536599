"""Arrays kept for later: in memory up to a limit, then in a temporary file."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Handle:
    """Where a stored array is. `offset` is None while it is in memory."""

    index: int
    offset: int | None
    dtype: str
    length: int


class Scratch:
    """Stores numpy arrays of fixed length; each may be read and overwritten in place.

    memory_bytes: what may stay in memory; arrays past it go to an unnamed temporary file, which
    disappears with the process whatever happens.
    """

    def __init__(self, memory_bytes: int, directory: str | None = None) -> None:
        self._memory_left = memory_bytes
        self._directory = directory
        self._arrays: list[npt.NDArray[Any] | None] = []
        self._file: Any = None
        self._file_bytes = 0

    @property
    def spilled_bytes(self) -> int:
        """Bytes that went to disk."""
        return self._file_bytes

    def add(self, array: npt.NDArray[Any]) -> Handle:
        index = len(self._arrays)
        if array.nbytes <= self._memory_left:
            self._memory_left -= array.nbytes
            self._arrays.append(array)
            return Handle(index, None, array.dtype.str, len(array))
        self._arrays.append(None)
        handle = Handle(index, self._file_bytes, array.dtype.str, len(array))
        self._file_bytes += array.nbytes
        self.replace(handle, array)
        return handle

    def get(self, handle: Handle) -> npt.NDArray[Any]:
        """The array; to change it for good, `replace` it."""
        array = self._arrays[handle.index]
        if array is not None:
            return array
        dtype = np.dtype(handle.dtype)
        self._file.seek(handle.offset)
        return np.frombuffer(bytearray(self._file.read(handle.length * dtype.itemsize)), dtype)

    def replace(self, handle: Handle, array: npt.NDArray[Any]) -> None:
        """Puts an array of the same length and type in the old one's place."""
        if handle.offset is None:
            self._arrays[handle.index] = array
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 - see close
        self._file.seek(handle.offset)
        self._file.write(np.ascontiguousarray(array).data)

    def close(self) -> None:
        self._arrays.clear()
        if self._file is not None:
            self._file.close()
