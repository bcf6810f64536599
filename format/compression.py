"""Compresses block payloads: one zstd frame per block; contexts are reused per thread."""

from __future__ import annotations

import threading
from typing import Final, cast

import pyarrow as pa
import zstandard

from format.layout import Codec

_TRUST_BYTES: Final = 16 << 20
_STEP_BYTES: Final = 4 << 20
_POOLED_BYTES: Final = 1 << 20
"""The size from which it pays to decompress into memory of Arrow's pool, whose pages are reused."""
_POOL_CODEC: Final = pa.Codec("zstd")

_contexts = threading.local()


def compress(raw: bytes | memoryview, level: int) -> tuple[Codec, bytes]:
    """Compresses a payload. Falls back to no codec if zstd does not make it smaller."""
    if level > 0 and len(raw) >= 64:
        stored = _compressor(level).compress(raw)
        if len(stored) < len(raw):
            return Codec.ZSTD, stored
    return Codec.NONE, bytes(raw)


def decompress(codec: Codec, stored: bytes | memoryview, raw_bytes: int) -> bytes | memoryview:
    """Decompresses a payload. raw_bytes: the length that the block header claims.

    Allocates memory as data appears, and never more than 16 MiB on the claim alone. What it returns holds no
    more memory than it has bytes, even if `stored` is a part of something larger.
    Raises `ValueError` if the data is not a frame or has another length.
    """
    raw: bytes | memoryview
    if codec is Codec.NONE:
        raw = bytes(stored) if isinstance(stored, memoryview) else stored
    elif raw_bytes <= _TRUST_BYTES:
        raw = _decompress_small(stored, raw_bytes)
    else:
        raw = _decompress_large(stored, raw_bytes)
    if len(raw) != raw_bytes:
        raise ValueError(f"{len(raw)} bytes after decompression where {raw_bytes} were stated")
    return raw


def _decompress_small(stored: bytes | memoryview, raw_bytes: int) -> bytes | memoryview:
    try:
        if zstandard.frame_content_size(stored) != raw_bytes:
            raise ValueError("the compressed frame states another length than the block header")
        if raw_bytes < _POOLED_BYTES:
            return _decompressor().decompress(stored)
        return memoryview(_POOL_CODEC.decompress(stored, raw_bytes))
    except (zstandard.ZstdError, OSError) as error:
        raise ValueError(f"it does not decompress ({error})") from error


def _decompress_large(stored: bytes | memoryview, raw_bytes: int) -> bytes:
    raw = bytearray()  # pieces that are joined later would be held twice
    try:
        with _decompressor().stream_reader(stored) as reader:
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
