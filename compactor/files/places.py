"""Finds where the bytes of a user's file are: in a local file, a stream that can be read once, or a store.

This room knows no stores. Those above it add the addresses of theirs by `serve`.
"""

from __future__ import annotations

import glob
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final, Protocol

from compactor.errors import InputError, UsageError
from compactor.files.arriving import ArrivingBytes
from compactor.files.problems import reading

STREAM: Final = "-"
"""Standard input as a file to read, standard output as one to write."""
STANDARD_INPUT: Final = "/dev/stdin"
"""Read standard input by this name, which says whether it is a pipe or a file."""
_FILE: Final = "file"
"""Addresses of this scheme are paths of folders of tables, and of no files."""
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_MAX_REMEMBERED: Final = 4 << 20
"""Remember this much of a stream: more than the readers look at before they begin with the rows."""


class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes:
        """Returns `size` bytes, fewer only at the end: readers cut their blocks by that. A stream returns
        fewer if no more come for a moment."""
        ...

    def close(self) -> None: ...


class Bytes(_Readable, Protocol):
    """The bytes of a file, forward only."""

    def tell(self) -> int: ...


class Place(ABC):
    """A place of bytes to read."""

    size_bytes: int = 0
    """Size as stored; 0 if it is unknown."""
    is_stream: bool = False
    """Whether the bytes can be read only once."""
    is_local: bool = False
    """Whether a local file has the bytes, which can be sought in."""
    version: str = ""
    """Text that changes whenever a store replaces the bytes; empty if nothing tells."""

    @abstractmethod
    def open(self) -> Bytes:
        """Begins at the first byte. This or the first read raises `CompactorError` or `OSError`."""

    def read(self, start: int, length: int, /) -> bytes:
        """Reads a range of a place that is neither local nor a stream. Raises `CompactorError`."""
        raise NotImplementedError


class Unfinished(ABC):
    """A file that is not visible before `publish`."""

    file: IO[bytes]

    @abstractmethod
    def seal(self) -> None:
        """Takes no more bytes."""

    @abstractmethod
    def publish(self) -> None:
        """Shows the sealed file, in place of any earlier one."""

    @abstractmethod
    def close(self) -> None:
        """Removes the file unless it is published. Idempotent."""


class Addresses(ABC):
    """What a store has for the addresses of a scheme."""

    @abstractmethod
    def place(self, address: str) -> Place:
        """Finds an object. Raises `InputError` if it is not there, and other `CompactorError`."""

    @abstractmethod
    def matching(self, pattern: str) -> list[str]:
        """Returns the addresses that match a pattern, sorted. Raises `CompactorError`."""

    @abstractmethod
    def check_target(self, address: str) -> None:
        """Raises `UsageError` for an address that no object can have."""

    @abstractmethod
    def create(self, address: str) -> Unfinished:
        """Begins an object. Raises `CompactorError`."""


Server = Callable[[str], Addresses | None]
"""Returns what serves a scheme, such as `s3`; None for a scheme of no store."""
_SERVERS: Final[list[Server]] = []


def serve(server: Server) -> None:
    """Lets paths with the schemes of a server be read and written."""
    if server not in _SERVERS:
        _SERVERS.append(server)


def addresses_of(path: str) -> Addresses | None:
    """Returns what serves an address; None for a local path.

    Raises `UsageError` for an address of no server, of which it repeats only the scheme.
    """
    match = _SCHEME.match(path)
    if match is None or match[1] == _FILE:
        return None
    scheme = match[1]
    found = next((each for server in _SERVERS if (each := server(scheme)) is not None), None)
    if found is None:
        raise _no_file(scheme)
    return found


def check_local(path: str) -> None:
    """Raises `UsageError` for an address, where only local files are read and written."""
    match = _SCHEME.match(path)
    if match is not None:
        raise _no_file(match[1])


def _no_file(scheme: str) -> UsageError:
    return UsageError(
        f"{scheme}://...: no file is read or written there: name a local file by its path; pipelines and "
        "entity merges also take objects of stores (s3://, gs://, az://)"
    )


def matching_paths(pattern: str) -> list[str]:
    """Returns the file of that name, or the files that match the pattern, sorted by name."""
    if pattern == STREAM:
        return [STANDARD_INPUT]
    if (served := addresses_of(pattern)) is not None:
        return served.matching(pattern)
    if not glob.has_magic(pattern) or exists(pattern):
        return [pattern]
    return sorted(glob.glob(pattern))  # noqa: PTH207 - Path.glob takes no absolute pattern


def exists(path: str) -> bool:
    """Returns whether there is a file or folder. Raises `InputError` if the system does not tell."""
    with reading(path):
        return Path(path).exists()


def place_of(path: str) -> Place:
    """Finds a file to read. Raises `InputError` if there is none, and for a folder."""
    if (served := addresses_of(path)) is not None:
        return served.place(path)
    with reading(path):
        status = Path(path).stat()
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError
        if stat.S_ISREG(status.st_mode):
            return _LocalFile(path, status.st_size)
        if _is_stream(status.st_mode):
            return _Stream(path)
    raise InputError(f"{path}: is neither a file nor a pipe: name one of these")


def is_stream(path: str | None) -> bool:
    """Returns whether a path is one of a stream, which can be read only once."""
    if path is None or _SCHEME.match(path):
        return False
    try:
        return _is_stream(Path(STANDARD_INPUT if path == STREAM else path).stat().st_mode)
    except OSError:
        return False


def _is_stream(mode: int) -> bool:
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


class _LocalFile(Place):
    is_local = True

    def __init__(self, path: str, size_bytes: int) -> None:
        self._path = path
        self.size_bytes = size_bytes

    def open(self) -> Bytes:
        return Path(self._path).open("rb")


class _Stream(Place):
    """Standard input, a FIFO or a character device."""

    is_stream = True

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def open(self) -> Bytes:
        return OnceBytes(lambda: ArrivingBytes(self._path), fills_up=False)


class OnceBytes:
    """Bytes that are read once, and whose beginning is remembered, so that a header can be read twice.

    The first read opens them: a FIFO waits until it has a writer.
    """

    def __init__(self, opened: Callable[[], _Readable], *, fills_up: bool = True) -> None:
        """fills_up: whether reads after `rewind` have the sizes of those of a file, as blocks of rows must
        have that are read twice."""
        self._opened = opened
        self._fills_up = fills_up
        self._file: _Readable | None = None
        self._position = 0
        self._start: bytearray | None = bytearray()
        """What was read so far; None once it is too much, or was read again."""
        self._again = b""

    def read(self, size: int = -1, /) -> bytes:
        data, self._again = self._split(size)
        if not data:
            data = self._read(size)
            if self._start is not None:
                self._start += data
                if len(self._start) > _MAX_REMEMBERED:
                    self._start = None
        elif self._fills_up and len(data) < size:
            data += self._read(size - len(data))
        self._position += len(data)
        return data

    def rewind(self) -> None:
        """Goes back to the first byte, once."""
        assert self._start is not None
        self._again, self._start = bytes(self._start), None
        self._position = 0

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _read(self, size: int) -> bytes:
        if self._file is None:
            self._file = self._opened()
        return self._file.read(size)

    def _split(self, size: int) -> tuple[bytes, bytes]:
        return (self._again, b"") if size < 0 else (self._again[:size], self._again[size:])
