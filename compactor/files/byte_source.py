"""Reads a file's decompressed bytes, forward only, and counts the compressed bytes."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import IO, Protocol

import pyarrow as pa

from compactor.errors import InputError
from compactor.files.names import Compression
from compactor.files.problems import one_line, reading


class FileBytes:
    """One reading of a file from its start. Not thread-safe; close it after use."""

    closed = False

    def __init__(self, path: str, compression: Compression) -> None:
        """Raises `InputError` if the file can't be opened."""
        self._path = path
        with reading(path):
            self._raw = Path(path).open("rb")  # noqa: SIM115 - closed by close()
        self._plain = _decompressed(self._raw, compression)

    @property
    def bytes_consumed(self) -> int:
        """Stored (compressed) bytes read so far."""
        return self._consumed_at_close if self.closed else self._raw.tell()

    def read(self, size: int = -1) -> bytes:
        """Returns about `size` bytes, at least one before the end. Raises `InputError` on damaged data."""
        try:
            return self._plain.read(size)
        except EOFError as error:
            raise InputError(
                f"{self._path}: its compressed data is cut off: fetch the file again"
            ) from error
        except (gzip.BadGzipFile, zlib.error, _DamagedZstdError) as error:
            raise InputError(
                f"{self._path}: its compressed data is damaged, or not of the kind that the file's ending "
                f"says: {one_line(error)}"
            ) from error
        except OSError as error:
            raise InputError(f"{self._path}: can't be read: {one_line(error)}") from error

    def close(self) -> None:
        if not self.closed:
            self._consumed_at_close = self._raw.tell()
            self.closed = True
            self._raw.close()


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _decompressed(raw: IO[bytes], compression: Compression) -> Readable:
    if compression is Compression.GZIP:
        return gzip.GzipFile(fileobj=raw, mode="rb")
    if compression is Compression.ZSTD:
        return _ZstdFrames(raw)
    return raw


class _ZstdFrames:
    """A stream of Zstandard frames, decompressed on demand: a few kB may expand to a GiB of zeros.

    It uses Arrow, because zstandard's stream reader mistakes a truncated frame for the end of the data, and
    its other interface returns the whole expansion of an input at once.
    """

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")

    def read(self, size: int, /) -> bytes:
        """Returns up to `size` bytes. Raises `EOFError` inside a truncated frame, and `_DamagedZstdError`."""
        try:
            data: bytes = self._raw.read(size)
        except OSError as error:
            if error.errno is not None:
                raise  # an error of the system
            if "Truncated" in str(error):
                raise EOFError from error
            raise _DamagedZstdError(str(error)) from error
        return data


class _DamagedZstdError(Exception):
    """Arrow could not decompress a frame."""
