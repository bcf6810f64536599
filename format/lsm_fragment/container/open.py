"""Opens fragments from a path, an open file or bytes, with readers that own their source."""

from __future__ import annotations

import io
import os
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import IO, Final, Protocol, Self

from lsm_fragment.container.reader import FragmentReader, RangeSource

_NO_NAME: Final = "fragment"


class _Ranges(RangeSource, Protocol):
    """A range source that can be closed."""

    def size_bytes(self) -> int: ...

    def close(self) -> None: ...


class OpenFragment(FragmentReader):
    """A `FragmentReader` that is a context manager and closes its source."""

    def __init__(self, source: _Ranges, size_bytes: int, name: str) -> None:
        """Use `open_fragment` instead."""
        self._ranges = source
        super().__init__(source, size_bytes, name)

    def close(self) -> None:
        """Closes the file, if this reader opened it. May be called twice."""
        self._ranges.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def open_fragment(source: str | PathLike[str] | bytes | IO[bytes]) -> OpenFragment:
    """Opens a fragment from a path, bytes, or a seekable file that is open for reading.

    with open_fragment("data/0000.frag") as fragment:
        polars.DataFrame(fragment)  # or duckdb.sql("FROM fragment"), pyarrow.table(fragment)
        fragment.to_reader(["service", "message"])

    Reads only header and footer at first. Columns are stored one after the other, so reading rows needs
    random access: read a pipe into memory first.
    Raises `TypeError` for any other source; `OSError`; `io.UnsupportedOperation` for a file that is not
    seekable; `NotAFragmentError`, `UnsupportedVersionError`, `CorruptFragmentError`.
    """
    if isinstance(source, (str, PathLike)):
        path = os.fspath(source)
        ranges: _Ranges = _PathRanges(path)
        name = path
    elif isinstance(source, bytes):
        ranges, name = _FileRanges(io.BytesIO(source)), _NO_NAME
    elif not hasattr(source, "seek"):
        raise TypeError(f"{source!r} is not a path, bytes or an open file")
    else:
        ranges, name = _FileRanges(source), str(getattr(source, "name", _NO_NAME))
    try:
        return OpenFragment(ranges, ranges.size_bytes(), name)
    except BaseException:
        ranges.close()
        raise


class _PathRanges:
    """Byte ranges of a file that this module opened; thread-safe."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("rb", buffering=0)  # noqa: SIM115 - closed by close()

    def size_bytes(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def read_range(self, start: int, length: int, /) -> bytes:
        file = self._file.fileno()
        data = os.pread(file, length, start)
        while data and len(data) < length:  # one call reads at most 2 GiB
            more = os.pread(file, length - len(data), start + len(data))
            if not more:
                break
            data += more
        return data

    def close(self) -> None:
        self._file.close()


class _FileRanges:
    """Byte ranges of the caller's file, which stays open; a lock serialises threads."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._lock = Lock()

    def size_bytes(self) -> int:
        return self._file.seek(0, os.SEEK_END)

    def read_range(self, start: int, length: int, /) -> bytes:
        with self._lock:
            self._file.seek(start)
            return self._file.read(length)

    def close(self) -> None:
        return
