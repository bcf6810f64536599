"""How much memory a reader takes on the word of a fragment: bombs are refused before they are decoded."""

from __future__ import annotations

import os
from typing import Final

MAX_CHUNK_BYTES: Final = int(os.environ.get("COMPACTOR_MAX_CHUNK_BYTES", 256 << 20))
"""A chunk's payload, and its values decoded, each may take so much, or `MAX_RATIO` times what is stored."""
MAX_JSON_BYTES: Final = 16 << 20
"""The same of a header or footer, of which far larger objects are made."""
MAX_RATIO: Final = 64


def most_chunk_bytes(stored_bytes: int) -> int:
    """What a chunk of a stored payload of so many bytes may take."""
    return max(MAX_CHUNK_BYTES, MAX_RATIO * stored_bytes)


def most_json_bytes(stored_bytes: int) -> int:
    """What a header, footer or name stored in so many bytes may take."""
    return max(MAX_JSON_BYTES, MAX_RATIO * stored_bytes)


def too_large(needed_bytes: int, most_bytes: int) -> str:
    """The cause, for an error."""
    return (
        f"{needed_bytes:,} bytes of memory are needed where {most_bytes:,} are allowed for so few stored "
        "ones: it is damaged or forged, or COMPACTOR_MAX_CHUNK_BYTES has to be raised"
    )
