"""Opens the store at an address, by its scheme.

Other distributions add schemes by entry points of the group `compactor.stores`: the entry point's name is the
scheme, and it names a function that takes the address and returns a `Store`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote, urlsplit

from compactor.errors import UsageError
from compactor.resources.packages import Extra, required
from compactor.stores.base import Folder
from compactor.stores.keys import check_key
from compactor.stores.local import LocalStore
from compactor.stores.obstore_services import SCHEMES as CLOUD_SCHEMES
from compactor.stores.obstore_services import Container, is_data_lake
from compactor.stores.s3_encryption import S3Encryption

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
"""A scheme has at least two letters, so that a drive letter is not taken for one."""
_PLAIN: Final = re.compile(r"(?s)[^:]+:(?>/*)[^/:@?#\s]*(?::\d{1,5})?(?:[/?#].*)?")
"""An address whose host is nothing but a host, with or without a port."""
_S3_RELATIVES: Final = ("s3", "s3a", "s3n")
_SCHEMES: Final = ("s3", *CLOUD_SCHEMES)
"""Schemes of addresses that name objects of a network's store, whose keys are paths behind a host."""
_CREDENTIALS: Final = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_SAS_TOKEN",
    "abfss": "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN",
}
GROUP: Final = "compactor.stores"
"""The group of entry points by which other distributions add schemes."""


def open_store(url: str) -> Folder:
    """Opens the store at a folder path, or at an address such as `s3://bucket/prefix`.

    Contacts nothing yet. Repeats nothing that may be a secret of an address that it refuses. Raises
    `UsageError` for addresses of no store, for one whose package is not installed, and `ConfigError` if the
    environment's encryption settings are wrong.
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
    scheme = match[1]
    if not _PLAIN.fullmatch(url) and not is_data_lake(url):
        raise UsageError(
            f"{match[0]}...: an address must not have keys or a password in it: set "
            f"{_CREDENTIALS.get(scheme, _CREDENTIALS['s3'])}"
        )
    if scheme == "s3":
        return _open_s3(url)
    if scheme == "file":
        return _open_file(url)
    if scheme in CLOUD_SCHEMES:
        return _open_cloud(url)
    if (opener := _registered(scheme)) is not None:
        return opener(url)
    raise UsageError(
        f"no store for {scheme}: addresses; use s3://bucket/prefix"
        if scheme.lower() in _S3_RELATIVES
        else f"no store for {scheme}: addresses; use s3://bucket/prefix, gs://bucket/prefix, "
        "az://container/prefix or a folder (with a colon in its name: ./name)"
    )


def has_objects(scheme: str) -> bool:
    """Returns whether a store of this or another distribution opens the addresses of a scheme."""
    return scheme in _SCHEMES or _registered(scheme) is not None


def _registered(scheme: str) -> Callable[[str], Folder] | None:
    """Returns what opens the addresses of a scheme of another distribution; None if there is none."""
    from importlib.metadata import entry_points  # loads slowly, and seldom matters

    found = [*entry_points(group=GROUP, name=scheme)]
    if len({each.value for each in found}) > 1:
        names = " and ".join(sorted(each.value for each in found))
        raise UsageError(f"{names} both open {scheme}: addresses: remove one of their packages")
    if not found:
        return None
    entry_point = found[0]
    try:
        opener: Callable[[str], Folder] = entry_point.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"{scheme}: addresses are opened by {entry_point.value}, which can't be loaded "
            f"({type(error).__name__}): install its package again"
        ) from error
    return opener


def _open_cloud(url: str) -> Folder:
    container = Container.at(url)
    service = container.service
    with required(service.extra, f"{url}: {service.name}"):
        from compactor.stores.obstore_store import (
            ObstoreStore,  # imported here, since it is an extra
        )
    return ObstoreStore(container)


def _open_file(url: str) -> Folder:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise UsageError(f"{url}: not a local file address; write file:///path/to/folder")
    return LocalStore(unquote(parts.path))


def _open_s3(url: str) -> Folder:
    with required(Extra.S3, "a store on S3"):
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
