"""Prepares types that JSON values are converted to."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def convertible(cls: type[T]) -> type[T]:
    """Makes msgspec inspect a class when its module is imported, in one thread.

    Otherwise the first conversion does so and caches the result without a lock: where sixteen threads read a
    log, two concurrent first conversions crashed the process (SIGSEGV, msgspec 0.22).
    """
    msgspec.json.Decoder(cls)
    return cls
