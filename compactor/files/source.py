"""What reading a user's file gives: a schema, batches, and progress."""

from __future__ import annotations

import contextlib
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, Protocol, Self

import pyarrow as pa
import zstandard

from compactor.errors import InputError

BATCH_ROWS: Final = 65_536
BLOCK_BYTES: Final = 8 << 20
_ZSTD_INPUT_BYTES: Final = 256 << 10
COMPRESSIONS: Final = (".gz", ".zst")


class FileBatches(Protocol):
    """An open file of rows; a context manager."""

    path: str
    schema: pa.Schema
    bytes_total: int

    @property
    def bytes_consumed(self) -> int:
        """How far reading has come, in bytes of the file, for progress."""
        ...

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


class CountedFile:
    """A file opened for reading, decompressed by its name's ending, its compressed bytes counted."""

    def __init__(self, path: str) -> None:
        self.path = path
        with readable(path):
            self._raw = Path(path).open("rb")  # noqa: SIM115 - closed by close()
        self._stream = self._decompressed()

    @property
    def position(self) -> int:
        return 0 if self._raw.closed else self._raw.tell()

    def read(self, size: int) -> bytes:
        """Raises `InputError` where the compressed data is damaged or ends early."""
        try:
            return self._stream.read(size)
        except (EOFError, OSError, zlib.error, zstandard.ZstdError) as error:
            raise InputError(
                f"{self.path}: the compressed data is damaged or cut off ({error}): "
                "make or fetch the file again"
            ) from error

    def close(self) -> None:
        self._raw.close()

    def _decompressed(self) -> _Readable:
        if self.path.endswith(".gz"):
            return gzip.GzipFile(fileobj=self._raw, mode="rb")
        if self.path.endswith(".zst"):
            return _ZstdFrames(self._raw)
        return self._raw


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _ZstdFrames:
    """Frames end to end. zstandard's own stream reader takes a cut-off frame for the end of data."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._frame: Any = None
        self._input = b""

    def read(self, size: int) -> bytes:
        """About `size` bytes; b"" at the end. Raises EOFError where the last frame is cut off."""
        pieces: list[bytes] = []
        total = 0
        while total < size:
            self._input = self._input or self._raw.read(_ZSTD_INPUT_BYTES)
            if not self._input:
                if self._frame is not None:
                    raise EOFError("the last zstd frame is cut off")
                break
            if self._frame is None:
                self._frame = zstandard.ZstdDecompressor().decompressobj()
            piece = self._frame.decompress(self._input)
            self._input = b""
            if self._frame.eof:
                self._input, self._frame = self._frame.unused_data, None
            pieces.append(piece)
            total += len(piece)
        return b"".join(pieces)


@contextlib.contextmanager
def readable(path: str) -> Iterator[None]:
    """Turns what can be wrong with a path into an `InputError`."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: it is a folder; name the files in it") from None
    except PermissionError:
        raise InputError(f"{path}: permission denied: check the file's owner and mode") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: it cannot be read: {text}") from error


def strip_compression(name: str) -> str:
    """`name` without .gz or .zst."""
    for ending in COMPRESSIONS:
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name
