"""What a key may look like; checked by every store, so that none can be talked out of its root."""

from __future__ import annotations

from typing import Final

from compactor.errors import UsageError

HIDDEN_FOLDER: Final = ".tmp"
"""Unfinished local files; no key leads there, on any store, so that tables can be copied about."""


def check_key(key: str) -> str:
    """`key` itself. Raises `UsageError` for absolute, empty, dotted or hidden-folder keys."""
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
    """`prefix` itself. Raises `UsageError` if no key could begin with it.

    Its last part may be cut anywhere, so only the folders before are checked.
    """
    folder, separator, _ = prefix.rpartition("/")
    if separator:
        check_key(folder)
    return prefix


def is_text(name: str) -> bool:
    """Whether it has an UTF-8 form. File systems' foreign bytes show as lone surrogates."""
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)
