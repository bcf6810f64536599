"""A memory pool of Arrow of a test's own: what other tests leave behind is freed elsewhere."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

# Buffers free themselves in the pool that made them, perhaps after the test: no pool ever goes.
_POOLS: Final[list[pa.MemoryPool]] = []


@contextmanager
def counting_pool() -> Iterator[pa.MemoryPool]:
    """Makes a new pool the default one of pyarrow while the context lasts.

    `pa.total_allocated_bytes` counts the whole process, and falls when a collector frees the
    arrays of an earlier test. This pool counts what was made within the context only.
    """
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    _POOLS.append(pool)
    gc.collect()
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(usual)
