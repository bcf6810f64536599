"""Compresses block payloads to one zstd frame per part. Each thread reuses its contexts."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final, cast

import pyarrow as pa
import zstandard
from msgspec import Struct

from lsm_fragment.blocks.layout import Codec
from lsm_fragment.blocks.parts import PayloadPart, joined_parts, read_parts

_TRUST_BYTES: Final = 16 << 20
_STEP_BYTES: Final = 4 << 20
_POOLED_BYTES: Final = 1 << 20
"""From this size on, decompress into Arrow's pool, which reuses memory, not with the thread's context."""
_POOL_CODEC: Final = pa.Codec("zstd")

_MIN_COMPRESSED_BYTES: Final = 64

_STORE_LEVEL: Final = -100
"""The zstd level for incompressible data: it is copied."""

_contexts = threading.local()


class Part(Struct, frozen=True):
    """A part of a payload, compressed to its own frame."""

    data: memoryview
    is_dense: bool = False
    """Whether the data is incompressible, so that its frame stores it as it is."""


def compress(parts: Sequence[Part], level: int) -> tuple[Codec, bytes]:
    """Compresses a payload. Uses no codec if zstd saves nothing.

    parts: at most 8. level: zstd's, 0 for no compression.
    """
    size = sum(part.data.nbytes for part in parts)
    if level <= 0 or size < _MIN_COMPRESSED_BYTES or all(part.is_dense for part in parts):
        return Codec.NONE, _joined(parts)
    frames = [
        _compressor(_STORE_LEVEL if part.is_dense else level).compress(part.data) for part in parts
    ]
    if len(frames) == 1:
        codec, stored = Codec.ZSTD, frames[0]
    else:
        codec, stored = Codec.ZSTD_PARTS, joined_parts(frames)
    return (codec, stored) if len(stored) < size else (Codec.NONE, _joined(parts))


def _joined(parts: Sequence[Part]) -> bytes:
    """Joins the parts. A single one stays a view, whose memory may be larger."""
    if len(parts) == 1:
        return cast("bytes", parts[0].data)
    return b"".join(part.data for part in parts)


def compressed_bytes(sample: bytes | memoryview) -> int:
    """Returns the size of a sample after fast compression."""
    _, stored = compress((Part(memoryview(sample)),), 1)
    return len(stored)


def decompress(codec: Codec, stored: bytes | memoryview, raw_bytes: int) -> bytes | memoryview:
    """Decompresses a payload. raw_bytes: the length stated by the block header.

    Allocates memory as data appears, and at most 16 MiB on the stated length alone. The result holds no more
    memory than its bytes, even if `stored` is a part of something larger.
    Raises `ValueError` if the data is not a frame or has another length.
    """
    raw: bytes | memoryview
    if codec is Codec.NONE:
        raw = bytes(stored) if isinstance(stored, memoryview) else stored
    elif codec is Codec.ZSTD_PARTS:
        parts = list(read_parts(stored, len(stored)))
        raw = decompress_parts(memoryview(stored)[parts[0].start :], parts, raw_bytes)
    elif raw_bytes <= _TRUST_BYTES:
        raw = _decompress_small(stored, raw_bytes)
    else:
        raw = _decompress_large(stored, raw_bytes)
    if len(raw) != raw_bytes:
        raise ValueError(f"{len(raw)} bytes after decompression where {raw_bytes} were stated")
    return raw


def decompress_head(frame: bytes | memoryview, raw_bytes: int) -> bytes | memoryview:
    """Decompresses the first of several parts.

    raw_bytes: the stated length of the whole payload. Raises `ValueError`.
    """
    return decompress(Codec.ZSTD, frame, min(content_bytes(frame), raw_bytes))


def decompress_parts(
    stored: bytes | memoryview, parts: Sequence[PayloadPart], raw_bytes: int
) -> bytes | memoryview:
    """Decompresses adjacent parts of a payload.

    stored: the payload from the first part's start to the last part's end. raw_bytes: the total length of the
    parts. Raises `ValueError`.
    """
    view, start = memoryview(stored), parts[0].start
    frames = [view[part.start - start : part.stop - start] for part in parts]
    if sum(map(content_bytes, frames)) != raw_bytes:
        raise ValueError("the compressed frames state another length than the block header")
    if raw_bytes > _TRUST_BYTES:
        return _decompress_large(view, raw_bytes, are_several=True)
    try:
        if raw_bytes < _POOLED_BYTES:
            return b"".join(map(_decompressed, frames))
        return memoryview(_POOL_CODEC.decompress(view, raw_bytes))
    except (zstandard.ZstdError, OSError) as error:
        raise ValueError(f"it does not decompress ({error})") from error


class FrameReader:
    """Decompresses one frame some bytes at a time."""

    def __init__(self, frame: memoryview) -> None:
        # A context of its own, since several frames are read in turn.
        self._reader = zstandard.ZstdDecompressor().stream_reader(frame, read_across_frames=True)

    def read_into(self, out: memoryview) -> None:
        """Fills `out` with the next bytes. Raises `ValueError` if the frame is damaged or ends before."""
        done = 0
        while done < len(out):
            count = self._read(out[done:])
            if not count:
                raise ValueError("the compressed frame has fewer bytes than it states")
            done += count

    def finish(self) -> None:
        """Raises `ValueError` if there is more."""
        if self._read(memoryview(bytearray(1))):
            raise ValueError("the compressed frame has more bytes than it states")

    def _read(self, out: memoryview) -> int:
        try:
            return self._reader.readinto(out)
        except zstandard.ZstdError as error:
            raise ValueError(f"it does not decompress ({error})") from error


def window_bytes(frame: memoryview) -> int:
    """Returns the memory that reading a frame some bytes at a time takes. Raises `ValueError`."""
    try:
        return int(zstandard.get_frame_parameters(frame).window_size)
    except zstandard.ZstdError as error:
        raise ValueError(f"it does not decompress ({error})") from error


def content_bytes(frame: bytes | memoryview) -> int:
    """Returns the length stated by a frame. Raises `ValueError` if there is none."""
    try:
        size = int(zstandard.frame_content_size(frame))
    except zstandard.ZstdError as error:
        raise ValueError(f"it does not decompress ({error})") from error
    if size < 0:
        raise ValueError("a compressed frame does not state its length")
    return size


def _decompress_small(stored: bytes | memoryview, raw_bytes: int) -> bytes | memoryview:
    try:
        if zstandard.frame_content_size(stored) != raw_bytes:
            raise ValueError("the compressed frame states another length than the block header")
        if raw_bytes < _POOLED_BYTES:
            return _decompressed(stored)
        return memoryview(_POOL_CODEC.decompress(stored, raw_bytes))
    except (zstandard.ZstdError, OSError) as error:
        raise ValueError(f"it does not decompress ({error})") from error


def _decompress_large(
    stored: bytes | memoryview, raw_bytes: int, *, are_several: bool = False
) -> bytes:
    raw = bytearray()  # joining pieces at the end would double the memory
    try:
        with _decompressor().stream_reader(stored, read_across_frames=are_several) as reader:
            while piece := reader.read(_STEP_BYTES):
                raw += piece
                if len(raw) > raw_bytes:
                    break
    except zstandard.ZstdError as error:
        raise ValueError(f"it does not decompress ({error})") from error
    if len(raw) != raw_bytes:
        raise ValueError(f"decompression gives another length than the {raw_bytes} bytes stated")
    return cast("bytes", raw)


def _compressor(level: int) -> zstandard.ZstdCompressor:
    cache: dict[int, zstandard.ZstdCompressor] | None = getattr(_contexts, "compressors", None)
    if cache is None:
        cache = _contexts.compressors = {}
    if level not in cache:
        cache[level] = zstandard.ZstdCompressor(level=level)
    return cache[level]


def _decompressed(frame: bytes | memoryview) -> bytes:
    return _decompressor().decompress(frame, allow_extra_data=False)


def _decompressor() -> zstandard.ZstdDecompressor:
    if not hasattr(_contexts, "decompressor"):
        _contexts.decompressor = zstandard.ZstdDecompressor()
    decompressor: zstandard.ZstdDecompressor = _contexts.decompressor
    return decompressor
