"""Reads a file's decompressed bytes, forward only and as UTF-8, and counts the compressed bytes."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.errors import InputError
from compactor.files.names import Compression
from compactor.files.places import Bytes, OnceBytes, Place
from compactor.files.problems import one_line, reading
from compactor.files.text_options import UTF_8

_UTF_16: Final = "utf-16"
_COMPRESSED_BYTES: Final = 256 << 10
"""Read this much of a compressed file at a time."""
_IN_UTF_8: Final = ("ascii", UTF_8)
_NOT_DECODED: Final = "compactor.not_decoded"
codecs.register_error(_NOT_DECODED, lambda error: ("\udcff", getattr(error, "end", 0)))


class FileBytes:
    """One reading of a file from its start. Not thread-safe; close it after use."""

    closed = False

    def __init__(
        self, path: str, place: Place, compression: Compression, encoding: str = UTF_8
    ) -> None:
        """Raises `InputError` if the file can't be opened.

        place: of the file at `path`, the same for all readings, so that they read the same bytes.
        encoding: what can't be decoded becomes a byte that is not UTF-8.
        """
        self._path = path
        self._place = place
        self._compression = compression
        self._encoding = encoding
        self._raw = self._opened()
        self._plain = self._text()

    @property
    def is_stream(self) -> bool:
        return self._place.is_stream

    def restart(self) -> None:
        """Begins again. A stream can do that once, near its beginning."""
        if isinstance(self._raw, OnceBytes):
            self._raw.rewind()
        else:
            self._raw.close()
            self._raw = self._opened()
        self._plain = self._text()

    def _opened(self) -> Any:
        with reading(self._path):
            if self._compression is Compression.ZSTD and self._place.is_local:
                return pa.OSFile(self._path)
            return self._place.open()

    def _text(self) -> Readable:
        plain = _decompressed(self._raw, self._compression)
        return plain if self._encoding in _IN_UTF_8 else _Recoded(plain, self._encoding)

    @property
    def bytes_consumed(self) -> int:
        """Stored (compressed) bytes read so far."""
        return self._consumed_at_close if self.closed else int(self._raw.tell())

    def read_after(self, room: int, size: int) -> npt.NDArray[np.uint8]:
        """Returns what `read` does, after `room` bytes that the caller may fill."""
        read_into = getattr(self._plain, "readinto", None)
        if read_into is None:
            return after(room, self.read(size))
        data = np.empty(room + size, np.uint8)
        with self._telling_damage():
            return data[: room + read_into(data[room:].data)]

    def read(self, size: int = -1) -> bytes:
        """Returns about `size` bytes, at least one before the end. Raises `InputError` on damaged data."""
        with self._telling_damage():
            return self._plain.read(size)

    @contextlib.contextmanager
    def _telling_damage(self) -> Iterator[None]:
        try:
            yield
        except EOFError as error:
            raise InputError(
                f"{self._path}: its compressed data is cut off: fetch the file again"
            ) from error
        except _DAMAGED as error:
            raise self._damaged(error) from error
        except OSError as error:
            # bz2 has no exception of its own for damaged data.
            if error.errno is None:
                raise self._damaged(error) from error
            raise InputError(f"{self._path}: can't be read: {one_line(error)}") from error

    def _damaged(self, error: Exception) -> InputError:
        return InputError(
            f"{self._path}: its compressed data is damaged, or not of the kind that the file's ending "
            f"says: {one_line(error)}"
        )

    def close(self) -> None:
        if not self.closed:
            self._consumed_at_close = int(self._raw.tell())
            self.closed = True
            self._raw.close()


def after(room: int, data: bytes) -> npt.NDArray[np.uint8]:
    """Returns the data after `room` bytes that the caller may fill."""
    found = np.empty(room + len(data), np.uint8)
    found[room:] = np.frombuffer(data, np.uint8)
    return found


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Recoded:
    """The bytes of a text in another encoding, in UTF-8."""

    def __init__(self, raw: Readable, encoding: str) -> None:
        self._raw = raw
        self._encoding = encoding
        self._decoder: codecs.IncrementalDecoder | None = None

    def read(self, size: int, /) -> bytes:
        text, is_last = "", False
        while not text and not is_last:
            data = self._raw.read(size)
            is_last = not data
            if self._decoder is None:
                self._decoder = codecs.getincrementaldecoder(self._actual(data))(_NOT_DECODED)
            text = self._decoder.decode(data, is_last)
        return text.encode(errors="surrogateescape")

    def _actual(self, start: bytes) -> str:
        """Returns the encoding. UTF-16 without a byte order mark begins with a character of ASCII."""
        if self._encoding == _UTF_16 and start[:2] not in (
            codecs.BOM_UTF16_LE,
            codecs.BOM_UTF16_BE,
        ):
            return "utf-16-be" if start[:1] == b"\0" else "utf-16-le"
        return self._encoding


def _decompressed(raw: Any, compression: Compression) -> Readable:
    if compression is Compression.GZIP:
        return gzip.GzipFile(fileobj=raw, mode="rb")
    if compression is Compression.ZSTD:
        return _ZstdFrames(raw)
    if compression is Compression.BZIP2:
        return _Streams(raw, bz2.BZ2Decompressor)
    if compression is Compression.XZ:
        return _Streams(raw, lzma.LZMADecompressor, padding=b"\0")
    plain: Readable = raw
    return plain


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes: ...


class _Streams:
    """Compressed streams that follow one another, decompressed on demand.

    Python's own files take a stream after the first that can't be decompressed for garbage, and end in front
    of it without a word.
    """

    def __init__(self, raw: Any, new: Callable[[], _Decompressor], *, padding: bytes = b"") -> None:
        """new: makes the decompressor of one stream. padding: the bytes that may follow a stream."""
        self._raw = raw
        self._new = new
        self._padding = padding
        self._stream = new()

    def read(self, size: int, /) -> bytes:
        """Returns up to `size` bytes. Raises `EOFError` within a stream, and what its decompressor raises."""
        while True:
            given = b""
            if self._stream.eof:
                if not (given := self._next_stream()):
                    return b""
                self._stream = self._new()
            elif self._stream.needs_input and not (given := self._raw.read(_COMPRESSED_BYTES)):
                raise EOFError
            if data := self._stream.decompress(given, size):
                return data

    def _next_stream(self) -> bytes:
        """Returns the first bytes of the next stream; none at the end."""
        found = self._stream.unused_data.lstrip(self._padding)
        while not found and (more := self._raw.read(_COMPRESSED_BYTES)):
            found = more.lstrip(self._padding)
        return found


class _ZstdFrames:
    """A stream of Zstandard frames, decompressed on demand: a few kB may expand to a GiB of zeros.

    It uses Arrow, because zstandard's stream reader mistakes a truncated frame for the end of the data, and
    its other interface returns the whole expansion of an input at once.
    """

    def __init__(self, raw: Any) -> None:
        file = raw if isinstance(raw, pa.NativeFile) else pa.PythonFile(_ForArrow(raw), mode="r")
        self._raw = pa.CompressedInputStream(file, "zstd")

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


class _ForArrow:
    """Bytes as a file that Arrow does not close."""

    closed = False

    def __init__(self, raw: Bytes) -> None:
        self.read = raw.read

    def close(self) -> None:
        return


class _DamagedZstdError(Exception):
    """Arrow could not decompress a frame."""


_DAMAGED: Final = (gzip.BadGzipFile, zlib.error, lzma.LZMAError, _DamagedZstdError)
