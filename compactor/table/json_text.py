"""Writes JSON of the log and its checkpoints, and parses it into texts that can be written again."""

from __future__ import annotations

import json
from typing import Any


def to_json_text(value: Any) -> str:
    """Returns JSON without white space, whose characters are not escaped."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def from_json_text(text: str | bytes) -> Any:
    """Returns the parsed value.

    Raises ValueError for invalid JSON or UTF-8, and for texts with half of a surrogate pair: JSON can name
    one but UTF-8 cannot, so no checkpoint of it could be written. The error does not repeat the text.
    """
    try:
        decoded = text if isinstance(text, str) else text.decode()
        value = json.loads(decoded)
        if "\\u" in decoded:
            json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise ValueError(f"its text is not UTF-8: {error.reason}") from None
    return value
