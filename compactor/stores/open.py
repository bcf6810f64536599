"""From an address to a store."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from compactor.errors import UsageError
from compactor.stores.base import Store
from compactor.stores.local import LocalStore


def open_store(url: str) -> Store:
    """The store at a folder path, `file://` address or `s3://bucket/prefix`.

    Nothing is contacted yet. Raises `UsageError` for other addresses.
    """
    scheme, separator, rest = url.partition(":")
    if scheme == "s3":
        return _open_s3(url)
    if scheme == "file" and separator:
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise UsageError(f"{url}: not a local file address; write file:///path/to/folder")
        return LocalStore(unquote(parts.path))
    if separator and rest.startswith("//"):
        raise UsageError(
            f"{url}: no store for {scheme}:// addresses; use a folder or s3://bucket/prefix"
        )
    if not url:
        raise UsageError("an empty address; use a folder or s3://bucket/prefix")
    return LocalStore(url)


def _open_s3(url: str) -> Store:
    from compactor.stores.s3 import S3Store  # boto3 takes a while to import; local use spares it

    parts = urlsplit(url)
    prefix = parts.path.strip("/")
    if not parts.netloc or parts.query or parts.fragment or "//" in prefix:
        raise UsageError(f"{url}: not an S3 address; write s3://bucket/prefix")
    return S3Store(parts.netloc, prefix)


def split_object_url(url: str) -> tuple[str, str]:
    """Store address and key of one object: what comes before and after the last slash."""
    root, separator, key = url.rstrip("/").rpartition("/")
    if not separator:
        return ".", key
    return root or "/", key
