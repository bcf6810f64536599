"""Types that JSON values are converted to."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T")


def convertible(cls: type[T]) -> type[T]:
    """Has msgspec look at a type when its module is imported, by one thread.

    Otherwise the first conversion does that, and keeps what it found without a lock: where sixteen threads
    read a log, as they do, two first conversions at a time ended the process (SIGSEGV, msgspec 0.22).
    """
    msgspec.json.Decoder(cls)
    return cls
