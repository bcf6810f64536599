"""Compresses block payloads to one zstd frame, or to two; contexts are reused per thread."""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
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
_HEAD_LENGTH: Final = struct.Struct("<Q")
"""The length of the first of two frames, as stored."""
HEAD_LENGTH_BYTES: Final = _HEAD_LENGTH.size

_contexts = threading.local()


def compress(parts: Sequence[bytes | memoryview], level: int) -> tuple[Codec, bytes]:
    """Compresses a payload. Falls back to no codec if zstd does not make it smaller.

    parts: one, or two of which each gets a frame of its own, so that the first can be read alone.
    """
    size = sum(map(len, parts))
    if level > 0 and len(parts) > 1:
        head, rest = map(_compressor(level).compress, parts)
        if _HEAD_LENGTH.size + len(head) + len(rest) < size:
            return Codec.ZSTD_PARTS, b"".join((_HEAD_LENGTH.pack(len(head)), head, rest))
    elif level > 0 and size >= _LEAST_COMPRESSED_BYTES:
        stored = _compressor(level).compress(parts[0])
        if len(stored) < size:
            return Codec.ZSTD, stored
    return Codec.NONE, b"".join(parts)


def compressed_bytes(sample: bytes | memoryview) -> int:
    """Returns the bytes that a sample takes, fast compressed."""
    _, stored = compress((sample,), 1)
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
        raw = _decompress_parts(stored, raw_bytes)
    elif raw_bytes <= _TRUST_BYTES:
        raw = _decompress_small(stored, raw_bytes)
    else:
        raw = _decompress_large(stored, raw_bytes)
    if len(raw) != raw_bytes:
        raise ValueError(f"{len(raw)} bytes after decompression where {raw_bytes} were stated")
    return raw


def decompress_head(codec: Codec, stored: bytes, raw_bytes: int) -> bytes | memoryview:
    """Decompresses only the first frame of a payload of two, or the whole of any other payload.

    raw_bytes: the length of the whole payload that the block header claims. Raises `ValueError`.
    """
    if codec is not Codec.ZSTD_PARTS:
        return decompress(codec, stored, raw_bytes)
    head, _ = _parts(stored)
    return decompress(Codec.ZSTD, head, min(_content_bytes(head), raw_bytes))


def decompress_rest(
    codec: Codec, stored: bytes, raw_bytes: int, head_bytes: int
) -> bytes | memoryview:
    """Decompresses what follows the head of a payload: the second of two frames, or the end of any other.

    raw_bytes: see `decompress_head`. head_bytes: the length of the head. Raises `ValueError`.
    """
    if codec is not Codec.ZSTD_PARTS:
        return memoryview(decompress(codec, stored, raw_bytes))[head_bytes:]
    head, rest = _parts(stored)
    if _content_bytes(head) != head_bytes:
        raise ValueError("the first frame has other bytes than templates and codes take")
    return decompress(Codec.ZSTD, rest, raw_bytes - head_bytes)


def _decompress_parts(stored: bytes | memoryview, raw_bytes: int) -> bytes | memoryview:
    head, rest = _parts(stored)
    if _content_bytes(head) + _content_bytes(rest) != raw_bytes:
        raise ValueError("the compressed frames state another length than the block header")
    frames = memoryview(stored)[_HEAD_LENGTH.size :]
    if raw_bytes > _TRUST_BYTES:
        return _decompress_large(frames, raw_bytes, are_several=True)
    try:
        return memoryview(_POOL_CODEC.decompress(frames, raw_bytes))
    except OSError as error:
        raise ValueError(f"it does not decompress ({error})") from error


def _parts(stored: bytes | memoryview) -> tuple[memoryview, memoryview]:
    """Returns the two frames of a payload. Raises `ValueError`."""
    view = memoryview(stored)
    if len(view) < _HEAD_LENGTH.size:
        raise ValueError("the payload is too short for its frames")
    (length,) = _HEAD_LENGTH.unpack_from(view)
    if length > len(view) - _HEAD_LENGTH.size:
        raise ValueError("the payload's first frame reaches past its end")
    stop = _HEAD_LENGTH.size + length
    return view[_HEAD_LENGTH.size : stop], view[stop:]


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
