"""The decompressed bytes of a file, forward only, and how many bytes of the file they took."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import IO, Any, Final, Protocol

import zstandard

from compactor.errors import InputError
from compactor.files.names import Compression
from compactor.files.problems import one_line, reading

_ZSTD_INPUT_BYTES: Final = 128 << 10


class ByteSource:
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
        """Bytes of the file read so far, as stored (that is, compressed)."""
        return self._consumed_at_close if self.closed else self._raw.tell()

    def read(self, size: int = -1) -> bytes:
        """About `size` bytes, never none before the end. Raises `InputError` on damaged data."""
        try:
            return self._plain.read(size)
        except EOFError as error:
            raise InputError(
                f"{self._path}: its compressed data is cut off: fetch the file again"
            ) from error
        except (gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
            raise InputError(
                f"{self._path}: its compressed data is damaged, or not what the file's ending says: "
                f"{one_line(error)}"
            ) from error
        except OSError as error:
            raise InputError(f"{self._path}: can't be read: {one_line(error)}") from error

    def close(self) -> None:
        if not self.closed:
            self._consumed_at_close = self._raw.tell()
            self.closed = True
            self._raw.close()


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _decompressed(raw: IO[bytes], compression: Compression) -> _Readable:
    if compression is Compression.GZIP:
        return gzip.GzipFile(fileobj=raw, mode="rb")
    if compression is Compression.ZSTD:
        return _ZstdFrames(raw)
    return raw


class _ZstdFrames:
    """Zstandard frames end to end.

    zstandard's own stream reader takes a frame that is cut off for the end of the data.
    """

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._frame: Any = None
        self._input = b""

    def read(self, size: int, /) -> bytes:
        """At least `size` bytes unless at the end. Raises `EOFError` inside a cut-off frame."""
        pieces: list[bytes] = []
        missing = size
        while missing > 0:
            self._input = self._input or self._raw.read(_ZSTD_INPUT_BYTES)
            if not self._input:
                if self._frame is not None:
                    raise EOFError
                break
            pieces.append(self._decompress())
            missing -= len(pieces[-1])
        return b"".join(pieces)

    def _decompress(self) -> bytes:
        if self._frame is None:
            self._frame = zstandard.ZstdDecompressor().decompressobj()
        piece: bytes = self._frame.decompress(self._input)
        self._input = b""
        if self._frame.eof:
            self._input, self._frame = self._frame.unused_data, None
        return piece
