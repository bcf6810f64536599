"""How much memory a reader takes on the word of a fragment: bombs are refused before they are decoded.

Writers hold themselves to the same (`format.fitting`), so that what was written can be read.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Final

from format.errors import FormatError

_MAX_CHUNK_BYTES: Final = 1 << 30
MAX_JSON_BYTES: Final = 16 << 20
"""The same of a header or footer, of which far larger objects are made."""
MAX_RATIO: Final = 64
KEPT_RATIO: Final = 16
"""A dictionary that is kept may stand for so many times what a chunk may take: who reads it expands
as few rows at a time as there is room for, but all of them some day."""


@cache
def max_chunk_bytes() -> int:
    """A chunk's payload, and its values decoded, each may take so much, or `MAX_RATIO` times what is stored.

    By default as much as the constants take that writers put into a node
    (`format.nodes.MAX_UNBACKED_VALUES`). Raises `FormatError` if COMPACTOR_MAX_CHUNK_BYTES is no number.
    """
    text = os.environ.get("COMPACTOR_MAX_CHUNK_BYTES", "")
    if not text:
        return _MAX_CHUNK_BYTES
    if not text.isdecimal() or int(text) == 0:
        raise FormatError(
            f"COMPACTOR_MAX_CHUNK_BYTES: {text!r} is no number of bytes, such as 4294967296"
        )
    return int(text)


def most_chunk_bytes(stored_bytes: int) -> int:
    """What a chunk of a stored payload of so many bytes may take."""
    return max(max_chunk_bytes(), MAX_RATIO * stored_bytes)


def most_written_bytes(stored_bytes: int) -> int:
    """What a chunk may take that is written, stored in so many bytes: never more than readers take that were
    told nothing, whatever COMPACTOR_MAX_CHUNK_BYTES allows this process to read."""
    return max(max_written_bytes(), MAX_RATIO * stored_bytes)


def max_written_bytes() -> int:
    """The same of a chunk stored in none."""
    return min(max_chunk_bytes(), _MAX_CHUNK_BYTES)


def most_json_bytes(stored_bytes: int) -> int:
    """What a header, footer or name stored in so many bytes may take."""
    return max(MAX_JSON_BYTES, MAX_RATIO * stored_bytes)


def too_large(needed_bytes: int, most_bytes: int) -> str:
    """The cause, for an error."""
    return (
        f"{needed_bytes:,} bytes of memory are needed where {most_bytes:,} are allowed for so few stored "
        "ones: it is damaged or forged, or COMPACTOR_MAX_CHUNK_BYTES has to be raised"
    )
