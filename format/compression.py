"""Compresses block payloads to one zstd frame, or to several; contexts are reused per thread."""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

import pyarrow as pa
import zstandard

from format.layout import Codec

_TRUST_BYTES: Final = 16 << 20
_STEP_BYTES: Final = 4 << 20
_POOLED_BYTES: Final = 1 << 20
"""The size from which it pays to decompress into memory of Arrow's pool, whose pages are reused."""
_POOL_CODEC: Final = pa.Codec("zstd")

_LEAST_COMPRESSED_BYTES: Final = 64
_LENGTH: Final = struct.Struct("<Q")
_MOST_PARTS: Final = 8
BEGINNING_BYTES: Final = 2 * _LENGTH.size
"""As much of a payload of several frames as `first_frame_bytes` needs."""

_DENSE_LEVEL: Final = -100
"""At which zstd passes data by that it does not shrink."""

_contexts = threading.local()


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a payload, which gets a frame of its own."""

    data: memoryview
    is_dense: bool = False
    """Whether no codec makes it smaller, so that a frame only holds it as it is."""


def compress(parts: Sequence[Part], level: int) -> tuple[Codec, bytes]:
    """Compresses a payload. Falls back to no codec if zstd does not make it smaller.

    parts: at most 8. level: zstd's, 0 for no compression.
    """
    size = sum(part.data.nbytes for part in parts)
    if level <= 0 or size < _LEAST_COMPRESSED_BYTES or all(part.is_dense for part in parts):
        return Codec.NONE, _joined(parts)
    frames = [
        _compressor(_DENSE_LEVEL if part.is_dense else level).compress(part.data) for part in parts
    ]
    if len(frames) == 1:
        codec, stored = Codec.ZSTD, frames[0]
    else:
        lengths = struct.pack(f"<{len(frames) + 1}Q", len(frames), *map(len, frames))
        codec, stored = Codec.ZSTD_PARTS, b"".join((lengths, *frames))
    return (codec, stored) if len(stored) < size else (Codec.NONE, _joined(parts))


def _joined(parts: Sequence[Part]) -> bytes:
    return b"".join(part.data for part in parts)


def compressed_bytes(sample: bytes | memoryview) -> int:
    """Returns the bytes that a sample takes, fast compressed."""
    _, stored = compress((Part(memoryview(sample)),), 1)
    return len(stored)


def decompress(codec: Codec, stored: bytes | memoryview, raw_bytes: int) -> bytes | memoryview:
    """Decompresses a payload. raw_bytes: the length that the block header claims.

    Allocates memory as data appears, and never more than 16 MiB on the claim alone. What it returns holds no
    more memory than it has bytes, even if `stored` is a part of something larger.
    Raises `ValueError` if the data is not a frame or has another length.
    """
    raw: bytes | memoryview
    if codec is Codec.NONE:
        raw = bytes(stored) if isinstance(stored, memoryview) else stored
    elif codec is Codec.ZSTD_PARTS:
        raw = _decompress_frames(stored, _frames(stored), raw_bytes)
    elif raw_bytes <= _TRUST_BYTES:
        raw = _decompress_small(stored, raw_bytes)
    else:
        raw = _decompress_large(stored, raw_bytes)
    if len(raw) != raw_bytes:
        raise ValueError(f"{len(raw)} bytes after decompression where {raw_bytes} were stated")
    return raw


def decompress_head(codec: Codec, stored: bytes, raw_bytes: int) -> bytes | memoryview:
    """Decompresses only the first frame of a payload of several, or the whole of any other payload.

    raw_bytes: the length of the whole payload that the block header claims. Raises `ValueError`.
    """
    if codec is not Codec.ZSTD_PARTS:
        return decompress(codec, stored, raw_bytes)
    head, *_ = _frames(stored)
    return decompress(Codec.ZSTD, head, min(_content_bytes(head), raw_bytes))


def decompress_rest(
    codec: Codec, stored: bytes, raw_bytes: int, head_bytes: int
) -> bytes | memoryview:
    """Decompresses what follows the head of a payload: the frames after the first, or the end of any other.

    raw_bytes: see `decompress_head`. head_bytes: the length of the head. Raises `ValueError`.
    """
    if codec is not Codec.ZSTD_PARTS:
        return memoryview(decompress(codec, stored, raw_bytes))[head_bytes:]
    head, *rest = _frames(stored)
    if _content_bytes(head) != head_bytes:
        raise ValueError("the first frame has other bytes than templates and codes take")
    return _decompress_frames(stored, rest, raw_bytes - head_bytes)


def first_frame_bytes(beginning: bytes) -> int:
    """Returns the length of the first of several frames, as stored. beginning: of the payload."""
    return int(_LENGTH.unpack_from(beginning, _LENGTH.size)[0])


def _decompress_frames(
    stored: bytes | memoryview, frames: Sequence[memoryview], raw_bytes: int
) -> bytes | memoryview:
    """Decompresses the last frames of a payload, which are back to back."""
    if sum(map(_content_bytes, frames)) != raw_bytes:
        raise ValueError("the compressed frames state another length than the block header")
    whole = memoryview(stored)[len(stored) - sum(map(len, frames)) :]
    if raw_bytes > _TRUST_BYTES:
        return _decompress_large(whole, raw_bytes, are_several=True)
    try:
        return memoryview(_POOL_CODEC.decompress(whole, raw_bytes))
    except OSError as error:
        raise ValueError(f"it does not decompress ({error})") from error


def _frames(stored: bytes | memoryview) -> list[memoryview]:
    """Returns the frames of a payload. Raises `ValueError`."""
    view = memoryview(stored)
    try:
        (count,) = _LENGTH.unpack_from(view)
        if not 1 < count <= _MOST_PARTS:
            raise ValueError(f"the payload has {count} frames")
        lengths = struct.unpack_from(f"<{count}Q", view, _LENGTH.size)
    except struct.error:
        raise ValueError("the payload is too short for its frames") from None
    at = _LENGTH.size * (1 + count)
    if sum(lengths) != len(view) - at:
        raise ValueError("the payload's frames have other lengths than it states")
    frames = []
    for length in lengths:
        frames.append(view[at : at + length])
        at += length
    return frames


def _content_bytes(frame: memoryview) -> int:
    """Returns the length that a frame states. Raises `ValueError` if it states none."""
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
            return _decompressor().decompress(stored)
        return memoryview(_POOL_CODEC.decompress(stored, raw_bytes))
    except (zstandard.ZstdError, OSError) as error:
        raise ValueError(f"it does not decompress ({error})") from error


def _decompress_large(
    stored: bytes | memoryview, raw_bytes: int, *, are_several: bool = False
) -> bytes:
    raw = bytearray()  # pieces that are joined later would be held twice
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


def _decompressor() -> zstandard.ZstdDecompressor:
    if not hasattr(_contexts, "decompressor"):
        _contexts.decompressor = zstandard.ZstdDecompressor()
    decompressor: zstandard.ZstdDecompressor = _contexts.decompressor
    return decompressor
