"""Checks keys and prefixes for every store, so that no key escapes its root."""

from __future__ import annotations

from typing import Final

from compactor.errors import UsageError

HIDDEN_FOLDER: Final = ".tmp"
"""Folder of unfinished local files. All stores refuse keys in it, so that tables can move between stores."""


def check_key(key: str) -> str:
    """Returns `key`. Raises `UsageError` for absolute, empty, dotted or hidden-folder keys."""
    parts = key.split("/")
    if not is_text(key):
        raise UsageError(f"{key!r} is not a key: it is not Unicode text")
    if any(part in ("", ".", "..") for part in parts) or "\0" in key or parts[0] == HIDDEN_FOLDER:
        raise UsageError(
            f"{key!r} is not a key: it must be relative, without '.', '..' or empty parts, and not "
            f"in {HIDDEN_FOLDER}/"
        )
    return key


def check_prefix(prefix: str) -> str:
    """Returns `prefix`. Raises `UsageError` if no key can begin with it.

    Checks only complete folder names: the last part may be cut anywhere.
    """
    folder, separator, _ = prefix.rpartition("/")
    if separator:
        check_key(folder)
    return prefix


def is_text(name: str) -> bool:
    """Returns whether the name is valid Unicode; other bytes in file names appear as lone surrogates."""
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)
