"""The names of a merge's stages: its plan, its reservations and reports use the same."""

from __future__ import annotations

from typing import Final

FETCH: Final = "fetch"
DECODE: Final = "decode"
CHUNKS: Final = "chunks"
ORDER: Final = "order"
ROW_ORDER: Final = "row order"
ROW_HASHES: Final = "row hashes"
ENCODE: Final = "encode"
FOOTER: Final = "footer"
PARTS: Final = "parts"
UPLOAD: Final = "upload"
