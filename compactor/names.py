"""Names of all objects of a table, built and parsed here only.

_log/00000000000000000007.json     version 7 of the table
data/<job id>-<part>.frag          a fragment; the id is unique to one attempt at writing it
"""

from __future__ import annotations

import re
from typing import Final

LOG_PREFIX: Final = "_log/"
DATA_PREFIX: Final = "data/"
_FRAGMENT: Final = re.compile(r"data/[0-9A-Za-z_-]+\.frag")
_VERSION: Final = re.compile(r"_log/(\d{20})\.json")


def version_key(version: int) -> str:
    return f"{LOG_PREFIX}{version:020d}.json"


def parse_version(key: str) -> int | None:
    """The version behind a key of the log; None for any other object there."""
    match = _VERSION.fullmatch(key)
    return int(match.group(1)) if match else None


def is_fragment_key(key: object) -> bool:
    return isinstance(key, str) and _FRAGMENT.fullmatch(key) is not None


def fragment_key(attempt_id: str, part: int) -> str:
    return f"{DATA_PREFIX}{attempt_id}-{part:05d}.frag"
