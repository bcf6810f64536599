"""Compression of block payloads. One zstd frame a block; contexts are reused per thread."""

from __future__ import annotations

import threading
from typing import Final, cast

import pyarrow as pa
import zstandard

from format.layout import Codec

_TRUST_BYTES: Final = 16 << 20
_STEP_BYTES: Final = 4 << 20
_POOLED_BYTES: Final = 1 << 20
"""From which it pays to decompress into memory of Arrow's pool, whose pages are used again."""
_POOL_CODEC: Final = pa.Codec("zstd")

_contexts = threading.local()


def compress(raw: bytes | memoryview, level: int) -> tuple[Codec, bytes]:
    """The payload as stored. Falls back to no codec where zstd does not make it smaller."""
    if level > 0 and len(raw) >= 64:
        stored = _compressor(level).compress(raw)
        if len(stored) < len(raw):
            return Codec.ZSTD, stored
    return Codec.NONE, bytes(raw)


def decompress(codec: Codec, stored: bytes, raw_bytes: int) -> bytes | memoryview:
    """Inverse of `compress`; `raw_bytes` is what the block header claims.

    Allocates as data really appears, never on the claim alone beyond 16 MiB.
    Raises ValueError if the data is not a frame or has another length.
    """
    raw: bytes | memoryview
    if codec is Codec.NONE:
        raw = stored
    elif raw_bytes <= _TRUST_BYTES:
        raw = _decompress_small(stored, raw_bytes)
    else:
        raw = _decompress_large(stored, raw_bytes)
    if len(raw) != raw_bytes:
        raise ValueError(f"{len(raw)} bytes after decompression where {raw_bytes} were stated")
    return raw


def _decompress_small(stored: bytes, raw_bytes: int) -> bytes | memoryview:
    try:
        if zstandard.frame_content_size(stored) != raw_bytes:
            raise ValueError("the compressed frame states another length than the block header")
        if raw_bytes < _POOLED_BYTES:
            return _decompressor().decompress(stored)
        return memoryview(_POOL_CODEC.decompress(stored, raw_bytes))
    except (zstandard.ZstdError, OSError) as error:
        raise ValueError(f"it does not decompress ({error})") from error


def _decompress_large(stored: bytes, raw_bytes: int) -> bytes:
    raw = bytearray()  # never held twice, as pieces to be joined would be
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
