"""Caches the results of parsing short texts, which many fragments of a table share."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def remembered(
    max_results: int, max_bytes: int
) -> Callable[[Callable[[bytes, *Ts], T]], Callable[[bytes, *Ts], T]]:
    """Returns a decorator that caches the last results of a pure function of a text.

    max_results: size of the cache. max_bytes: longer texts are not cached, which bounds the memory.
    """

    def decorate(parse: Callable[[bytes, *Ts], T]) -> Callable[[bytes, *Ts], T]:
        remembering = lru_cache(max_results)(parse)

        @wraps(parse)
        def parsed(text: bytes, *rest: *Ts) -> T:
            return remembering(text, *rest) if len(text) <= max_bytes else parse(text, *rest)

        return parsed

    return decorate
