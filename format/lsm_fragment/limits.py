"""Limits the memory that a fragment can make a reader allocate: decompression bombs are refused before they
are decoded.

Writers keep to the same limits (`lsm_fragment.encodings.fitting`), so everything written can be read.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Final

from lsm_fragment.errors import FormatError

_MAX_CHUNK_BYTES: Final = 1 << 30
MAX_METADATA_BYTES: Final = 16 << 20
"""The limit for a header, page or directory: parsing turns them into far larger objects."""
MAX_RATIO: Final = 64
KEPT_RATIO: Final = 16
"""The values of a kept dictionary may take this many times a chunk's limit: a reader expands only some rows
at a time, but all of them in the end."""


@cache
def max_chunk_bytes() -> int:
    """Returns the limit for a chunk's payload, and for its decoded values; `MAX_RATIO` times the stored bytes
    are allowed if that is more.

    The default fits the constants that writers put into a node
    (`lsm_fragment.encodings.node.MAX_UNBACKED_VALUES`). Raises `FormatError` if COMPACTOR_MAX_CHUNK_BYTES is
    not a number.
    """
    text = os.environ.get("COMPACTOR_MAX_CHUNK_BYTES", "")
    if not text:
        return _MAX_CHUNK_BYTES
    if not text.isdecimal() or int(text) == 0:
        raise FormatError(
            f"COMPACTOR_MAX_CHUNK_BYTES: {text!r} is not a number of bytes, such as 4294967296"
        )
    return int(text)


def chunk_limit_bytes(stored_bytes: int) -> int:
    """Returns the limit for a chunk whose stored payload has this size."""
    return max(max_chunk_bytes(), MAX_RATIO * stored_bytes)


def written_limit_bytes(stored_bytes: int) -> int:
    """Returns the limit for a written chunk of this stored size: the default of readers, whatever
    COMPACTOR_MAX_CHUNK_BYTES allows this process to read."""
    return max(max_written_bytes(), MAX_RATIO * stored_bytes)


def max_written_bytes() -> int:
    """Returns `written_limit_bytes` of a chunk that stores no bytes."""
    return min(max_chunk_bytes(), _MAX_CHUNK_BYTES)


def max_metadata_bytes(stored_bytes: int) -> int:
    """Returns the limit for a header, name, page or directory of this stored size."""
    return max(MAX_METADATA_BYTES, MAX_RATIO * stored_bytes)


def too_large(needed_bytes: int, max_bytes: int) -> str:
    """Returns the cause for an error."""
    return (
        f"{needed_bytes:,} bytes of memory are needed where {max_bytes:,} are allowed for so few stored "
        "ones: it is damaged or forged, or COMPACTOR_MAX_CHUNK_BYTES has to be raised"
    )
