"""Remembers what short texts were parsed to, which many fragments of a table have in common."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def remembered(
    most: int, max_bytes: int
) -> Callable[[Callable[[bytes, *Ts], T]], Callable[[bytes, *Ts], T]]:
    """Returns a decorator of a pure function of a text that remembers its last results.

    most: the number of results. max_bytes: longer texts are parsed each time, so that memory is bounded.
    """

    def decorate(parse: Callable[[bytes, *Ts], T]) -> Callable[[bytes, *Ts], T]:
        remembering = lru_cache(most)(parse)

        @wraps(parse)
        def parsed(text: bytes, *rest: *Ts) -> T:
            return remembering(text, *rest) if len(text) <= max_bytes else parse(text, *rest)

        return parsed

    return decorate
