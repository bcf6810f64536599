"""The adapter of obstore over obstore's own store in memory."""

from __future__ import annotations

import obstore.store
from msgspec.structs import replace

from compactor.stores.obstore_services import GOOGLE, Container
from compactor.stores.obstore_store import ObstoreStore


def obstore_in_memory() -> ObstoreStore:
    service = replace(GOOGLE, name="memory")
    container = Container(
        service=service, root="memory://bucket", name="bucket", prefix="a prefix/ü"
    )
    objects = obstore.store.MemoryStore()
    return ObstoreStore(container, connect=lambda _container, _retries: objects)
