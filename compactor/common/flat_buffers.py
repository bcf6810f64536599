"""Reads tables of FlatBuffers from untrusted bytes: every offset is checked."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Self


class FlatTable:
    """A table of a FlatBuffer. Its fields are numbered by slots; those that are left out have a default.

    Raises `ValueError` for a place before the buffer and for text that is no UTF-8, `struct.error` for a
    place beyond its end.
    """

    def __init__(self, data: bytes | memoryview, at: int) -> None:
        self._data = data
        self._at = at
        self._slots = at - number_at("<i", data, at)
        self._size = number_at("<H", data, self._slots)

    def place(self, slot: int) -> int | None:
        """Returns the place of the field; None if it is left out."""
        entry = 4 + 2 * slot
        if entry + 2 > self._size:
            return None
        offset = number_at("<H", self._data, self._slots + entry)
        return self._at + offset if offset else None

    def number(self, code: str, slot: int) -> int:
        """Returns an integer, 0 by default. code: its form, of `struct`."""
        place = self.place(slot)
        return 0 if place is None else number_at(code, self._data, place)

    def target(self, slot: int) -> int | None:
        """Returns the place of what the field refers to; None if the field is left out."""
        place = self.place(slot)
        return None if place is None else target_at(self._data, place)

    def table(self, slot: int) -> Self | None:
        start = self.target(slot)
        return None if start is None else type(self)(self._data, start)

    def tables(self, slot: int) -> Iterator[Self]:
        start = self.target(slot)
        if start is not None:
            for item in range(number_at("<I", self._data, start)):
                yield type(self)(self._data, target_at(self._data, start + 4 + 4 * item))

    def text(self, slot: int) -> str:
        start = self.target(slot)
        if start is None:
            return ""
        return str(self._data[start + 4 :][: number_at("<I", self._data, start)], "utf-8")


def target_at(data: bytes | memoryview, place: int) -> int:
    """Returns the place that the offset at another place leads to."""
    return place + number_at("<I", data, place)


def number_at(code: str, data: bytes | memoryview, at: int) -> int:
    if at < 0:
        raise ValueError("a FlatBuffer refers to a place before its beginning")
    return int(struct.unpack_from(code, data, at)[0])
