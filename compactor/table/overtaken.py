"""Telling a reader that a vacuum has overtaken from one whose fragment is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
    """Turns what a store says of an object that is gone into `OvertakenError`, where a vacuum removed it.

    S3 says of it that permission is denied, to those who may not list the bucket as a whole.
    """
    try:
        yield
    except (ObjectNotFoundError, PermissionDeniedError) as error:
        if not _is_vacuumed(store, key):
            raise
        raise OvertakenError(
            f"{store.url}/{key}: a vacuum removed it while an older version of the table was read: run it "
            "again; if readers take longer than the vacuum's --retain, vacuum with a longer one"
        ) from error


def _is_vacuumed(store: Store, key: str) -> bool:
    """Returns whether an object is gone and nothing in the table refers to it any more."""
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
