"""Recognises the folder of a table, whose files only the table's own programs write."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

LOG_FOLDER: Final = "_log"
VERSION_NAME: Final = r"([0-9]{20})\.json"
"""The pattern of the names of versions in it."""


def table_around(path: Path) -> Path | None:
    """Returns the folder of the table in which a resolved path is; None if it is in none."""
    return next((folder for folder in path.parents if _has_log(folder)), None)


def _has_log(folder: Path) -> bool:
    with suppress(OSError), os.scandir(folder / LOG_FOLDER) as entries:
        return any(re.fullmatch(VERSION_NAME, entry.name) for entry in entries)
    return False
