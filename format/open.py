"""Fragments where people have them: a path, an open file, bytes. Readers that own their source."""

from __future__ import annotations

import io
import os
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import IO, Final, Protocol, Self

from format.reader import FragmentReader, RangeSource

_NO_NAME: Final = "fragment"


class _Ranges(RangeSource, Protocol):
    """Of something open."""

    def size_bytes(self) -> int: ...

    def close(self) -> None: ...


class OpenFragment(FragmentReader):
    """A `FragmentReader` that closes what it opened: a context manager."""

    def __init__(self, source: _Ranges, size_bytes: int, name: str) -> None:
        """Use `open_fragment`."""
        self._ranges = source
        super().__init__(source, size_bytes, name)

    def close(self) -> None:
        """Lets go of the file, if it was opened for this. May be called twice."""
        self._ranges.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def open_fragment(source: str | PathLike[str] | bytes | IO[bytes]) -> OpenFragment:
    """One fragment, of a path, of bytes, or of a file that is open for reading and can be sought.

    with open_fragment("data/0000.frag") as fragment:
        polars.DataFrame(fragment)  # or duckdb.sql("FROM fragment"), pyarrow.table(fragment)
        fragment.to_reader(["service", "message"])

    Only header and footer are read here. Columns lie one after the other in a fragment, so rows need random
    access: a pipe has to be read into memory first.
    Raises `TypeError` for anything else; `OSError`; `io.UnsupportedOperation` for a file that can't be
    sought; `NotAFragmentError`, `UnsupportedVersionError`, `CorruptFragmentError`.
    """
    if isinstance(source, (str, PathLike)):
        path = os.fspath(source)
        ranges: _Ranges = _PathRanges(path)
        name = path
    elif isinstance(source, bytes):
        ranges, name = _FileRanges(io.BytesIO(source)), _NO_NAME
    elif not hasattr(source, "seek"):
        raise TypeError(f"{source!r} is no path, no bytes and no open file")
    else:
        ranges, name = _FileRanges(source), str(getattr(source, "name", _NO_NAME))
    try:
        return OpenFragment(ranges, ranges.size_bytes(), name)
    except BaseException:
        ranges.close()
        raise


class _PathRanges:
    """Of a file of our own; any number of threads may read."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115 - closed by close()

    def size_bytes(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def read_range(self, start: int, length: int, /) -> bytes:
        file = self._file.fileno()
        data = os.pread(file, length, start)
        while data and len(data) < length:  # the system reads 2 GiB at a time at most
            more = os.pread(file, length - len(data), start + len(data))
            if not more:
                break
            data += more
        return data

    def close(self) -> None:
        self._file.close()


class _FileRanges:
    """Of a file of the caller's, which is left open; threads take turns."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._turn = Lock()

    def size_bytes(self) -> int:
        return self._file.seek(0, os.SEEK_END)

    def read_range(self, start: int, length: int, /) -> bytes:
        with self._turn:
            self._file.seek(start)
            return self._file.read(length)

    def close(self) -> None:
        return
