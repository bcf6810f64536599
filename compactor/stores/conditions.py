"""Whether a store creates an object only if there is none: commits rest on it.

Old servers that speak S3's protocol pass `If-None-Match` over and answer that all is well. Of two writers who
create the same version there, one replaces the other's, and neither is told.
"""

from __future__ import annotations

from typing import Final

from compactor.errors import ObjectExistsError, StoreError
from compactor.stores.base import Store

_TEXT: Final = b"Writers create this object once more, and go on only if the store refuses.\n"


def prove_conditional_writes(store: Store, key: str) -> None:
    """Raises `StoreError` if the store puts an object where one is that was to be created only if absent.

    It costs one request, and two where nobody has asked before. Raises as `Store.create`, too.
    """
    for _ in range(2):
        try:
            store.create(key, _TEXT)
        except ObjectExistsError:
            return
    raise StoreError(
        f"{store.url}: the store has no conditional writes: it replaced {key}, which was to be created "
        "only if absent (If-None-Match: *). Writers would replace each other's commits there without a word, "
        "so nothing was changed: use a store, or a release of this one, that has them"
    )
