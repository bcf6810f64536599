"""Distinguishes a reader that a vacuum has overtaken from one whose fragment is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from compactor.common.setting_keys import RETAIN_SECONDS
from compactor.errors import (
    CompactorError,
    ObjectNotFoundError,
    OvertakenError,
    PermissionDeniedError,
)
from compactor.stores.base import Store
from compactor.table.history import History
from compactor.table.snapshot import Snapshot


@contextmanager
def overtaken_explained(store: Store, key: str) -> Iterator[None]:
    """Turns a store's error about a missing object into `OvertakenError` if a vacuum removed the object.

    S3 answers "permission denied" for a missing object to callers that may not list the whole bucket.
    """
    try:
        yield
    except (ObjectNotFoundError, PermissionDeniedError) as error:
        if not _is_vacuumed(store, key):
            raise
        raise OvertakenError(
            f"{store.url}/{key}: a vacuum removed it while an older version of the table was read; read "
            "again, and if readers take longer than the vacuum's ",
            RETAIN_SECONDS,
            ", vacuum with a longer one",
        ) from error


def _is_vacuumed(store: Store, key: str) -> bool:
    """Says whether an object is gone and nothing in the table refers to it any more."""
    try:
        if any(info.key == key for info in store.list(key)):
            return False
        newest = History(store, readers=1).newest(Snapshot.empty()).snapshot
    except CompactorError:
        return False
    return newest.version > 0 and not any(
        key == entry.key or (entry.deletion is not None and key == entry.deletion.key)
        for entry in newest.fragments.all()
    )
