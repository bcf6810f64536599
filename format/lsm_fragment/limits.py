"""Limits the memory that a reader takes because a fragment says so: bombs are refused before they are
decoded.

Writers keep the same limits (`lsm_fragment.encodings.fitting`), so that everything written can be read.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Final

from lsm_fragment.errors import FormatError

_MAX_CHUNK_BYTES: Final = 1 << 30
MAX_METADATA_BYTES: Final = 16 << 20
"""The limit for a header, page or directory, from which far larger objects are made."""
MAX_RATIO: Final = 64
KEPT_RATIO: Final = 16
"""The values of a kept dictionary may take this many times what a chunk may take: a reader expands only as
many rows at a time as it has room for, but in the end all of them."""


@cache
def max_chunk_bytes() -> int:
    """Returns the bytes that a chunk's payload, and its decoded values, may take; or `MAX_RATIO` times the
    stored bytes, if that is more.

    The default is what the constants take that writers put into a node
    (`lsm_fragment.encodings.node.MAX_UNBACKED_VALUES`). Raises `FormatError` if COMPACTOR_MAX_CHUNK_BYTES
    is not a number.
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
    """Returns the bytes that a chunk with a stored payload of this size may take."""
    return max(max_chunk_bytes(), MAX_RATIO * stored_bytes)


def written_limit_bytes(stored_bytes: int) -> int:
    """Returns the bytes that a written chunk of this stored size may take: what readers accept by default,
    whatever COMPACTOR_MAX_CHUNK_BYTES allows this process to read."""
    return max(max_written_bytes(), MAX_RATIO * stored_bytes)


def max_written_bytes() -> int:
    """Returns what `written_limit_bytes` gives for a chunk that stores no bytes."""
    return min(max_chunk_bytes(), _MAX_CHUNK_BYTES)


def max_metadata_bytes(stored_bytes: int) -> int:
    """Returns the bytes that a header, name, page or directory of this stored size may take."""
    return max(MAX_METADATA_BYTES, MAX_RATIO * stored_bytes)


def too_large(needed_bytes: int, max_bytes: int) -> str:
    """Returns the cause for an error."""
    return (
        f"{needed_bytes:,} bytes of memory are needed where {max_bytes:,} are allowed for so few stored "
        "ones: it is damaged or forged, or COMPACTOR_MAX_CHUNK_BYTES has to be raised"
    )
