"""Checks keys and prefixes. Every store uses these checks, so that no key leads out of its root."""

from __future__ import annotations

from typing import Final

from compactor.errors import UsageError

HIDDEN_FOLDER: Final = ".tmp"
"""Folder of unfinished local files. No store allows keys in it, so that tables can be copied about."""


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
    """Returns `prefix`. Raises `UsageError` if no key could begin with it.

    Its last part may end anywhere, so only the folders before it are checked.
    """
    folder, separator, _ = prefix.rpartition("/")
    if separator:
        check_key(folder)
    return prefix


def is_text(name: str) -> bool:
    """Says whether the name has a UTF-8 form. Foreign bytes of file systems show as lone surrogates."""
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)
