"""Bytes that are not those that were written: in an answer, or where they are stored."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from msgspec import Struct

from tests.faults.calls import Call, Effect


class Damage(Struct, frozen=True):
    change: Callable[[Any], Any]
    """Makes the content that arrives of the right one: of bytes, or of the entries of a listing."""

    def around(self, call: Call, effect: Effect) -> Any:
        return call.damaged(effect(), self.change)


def flipped(data: bytes, at: int | None = None, bits: int = 1) -> bytes:
    """Returns the bytes with some bits of one byte flipped: of the byte in the middle if none is named."""
    changed = bytearray(data)
    changed[len(data) // 2 if at is None else at] ^= bits
    return bytes(changed)


def worse(data: bytes, random: Random) -> bytes:
    """Returns what a broken disk makes of the bytes: one bit flipped, cut off, nothing, or other bytes."""
    match random.randrange(4):
        case 0:
            at = random.randrange(len(data))
            return flipped(data, at, 1 << random.randrange(8))
        case 1:
            return data[: random.randrange(len(data))]
        case 2:
            return b""
        case _:
            return random.randbytes(random.choice([1, 100]))
