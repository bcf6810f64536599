"""Opens the store at an address."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

from compactor.errors import UsageError
from compactor.stores.base import Folder
from compactor.stores.keys import check_key
from compactor.stores.local import LocalStore
from compactor.stores.s3_encryption import S3Encryption

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
"""A scheme has at least two letters, so that a drive letter is not taken for one."""
_PLAIN: Final = re.compile(r"(?s)[^:]+:(?>/*)[^/:@?#\s]*(?::\d{1,5})?(?:[/?#].*)?")
"""An address whose host is nothing but a host, with or without a port."""
_S3_RELATIVES: Final = ("s3", "s3a", "s3n")


def open_store(url: str) -> Folder:
    """Opens the store at a folder path, `file://` address or `s3://bucket/prefix`.

    Contacts nothing yet. Repeats nothing that may be a secret of an address that it refuses. Raises
    `UsageError` for other addresses, and `ConfigError` if the environment's encryption settings are wrong.
    """
    if not url:
        raise UsageError("the address is empty; use a folder or s3://bucket/prefix")
    if "\0" in url:
        raise UsageError(
            f"{url!r}: an address cannot have a NUL character; use a folder or s3://bucket/prefix"
        )
    match = _SCHEME.match(url)
    if match is None:
        return LocalStore(url)
    if not _PLAIN.fullmatch(url):
        raise UsageError(
            f"{match[0]}...: an address must not have keys or a password in it: set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role"
        )
    if match[1] == "s3":
        return _open_s3(url)
    if match[1] == "file":
        return _open_file(url)
    raise UsageError(
        f"no store for {match[1]}: addresses; use s3://bucket/prefix"
        if match[1].lower() in _S3_RELATIVES
        else f"no store for {match[1]}: addresses; use s3://bucket/prefix or a folder (with a "
        "colon in its name: ./name)"
    )


def _open_file(url: str) -> Folder:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise UsageError(f"{url}: not a local file address; write file:///path/to/folder")
    return LocalStore(unquote(parts.path))


def _open_s3(url: str) -> Folder:
    from compactor.stores.s3 import S3Store  # imported here, since boto3 loads slowly

    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    prefix = prefix.removesuffix("/")
    if not url.startswith("s3://") or not re.fullmatch(r"[A-Za-z0-9._-]+", bucket):
        raise UsageError(f"{url}: not an S3 address; write s3://bucket/prefix")
    # Both characters are legal in a key, but an address with one was probably copied from the S3 console.
    if "?" in prefix or "#" in prefix:
        raise UsageError(
            f"s3://{bucket}/...: '?' and '#' have no meaning here; write s3://bucket/prefix"
        )
    return S3Store(
        bucket, check_key(prefix) if prefix else "", encryption=S3Encryption.from_environment()
    )


def split_object_url(url: str) -> tuple[str, str]:
    """Splits the address of an object at its last slash into store address and key."""
    root, separator, key = url.rstrip("/").rpartition("/")
    if not separator:
        return ".", key
    return root or "/", key
