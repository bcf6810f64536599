"""What a key may look like; checked by every store, so that none can be talked out of its root."""

from __future__ import annotations

from compactor.errors import UsageError


def check_key(key: str) -> str:
    """`key` itself. Raises `UsageError` for absolute, empty, dotted or hidden-folder keys."""
    parts = key.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in key or parts[0] == ".tmp":
        raise UsageError(
            f"{key!r} is not a key: it must be relative, without '.', '..' or empty parts"
        )
    return key
