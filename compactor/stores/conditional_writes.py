"""Proves that a store honours create-if-absent, which commits depend on.

Some old S3-compatible servers ignore `If-None-Match` and report success. Of two writers that create the same
version there, one silently replaces the other's.
"""

from __future__ import annotations

from typing import Final

from compactor.errors import ObjectExistsError, StoreError
from compactor.stores.base import Store

_TEXT: Final = b"Writers create this object once more, and go on only if the store refuses.\n"


def prove_conditional_writes(store: Store, key: str) -> None:
    """Raises `StoreError` if the store replaces an object that was to be created only if absent.

    Sends one request, or two if the object of the test does not exist yet. Also raises what `Store.create`
    raises.
    """
    for _ in range(2):
        try:
            store.create(key, _TEXT)
        except ObjectExistsError:
            return
    raise StoreError(
        f"{store.url}: the store has no conditional writes: it replaced {key}, which was to be created "
        "only if absent (If-None-Match: *). Writers would replace each other's commits there unnoticed, "
        "so nothing was changed. Use a store, or a release of this one, that has them"
    )
