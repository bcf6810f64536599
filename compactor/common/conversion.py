"""Prepares classes for msgspec's conversion from JSON."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def convertible(cls: T) -> T:
    """Makes msgspec inspect a class or another type at import time, in one thread.

    msgspec otherwise inspects it on the first conversion and caches the result without a lock: two concurrent
    first conversions crashed a process with sixteen threads (SIGSEGV, msgspec 0.22).
    """
    msgspec.json.Decoder(cls)
    return cls
