"""Reads a file that is one JSON array of objects as if each of them were a line."""

from __future__ import annotations

from codecs import BOM_UTF8
from typing import Final

from compactor.errors import InputError
from compactor.files.byte_source import FileBytes
from lsm_fragment.native.arrays.json_items import ItemLines

_BLANKS: Final = b" \t\r\n"


class ItemBytes(FileBytes):
    """The bytes of a file; if it is an array, those of its items, each on a line."""

    is_array = False
    _items: ItemLines | None = None
    _has_begun = False

    def read(self, size: int = -1) -> bytes:
        data = super().read(size)
        if not self._has_begun and (start := data.removeprefix(BOM_UTF8).lstrip(_BLANKS)):
            self._has_begun = True
            self.is_array = start.startswith(b"[")
            if self.is_array:
                self._items, data = ItemLines(), start
        if self._items is None:
            return data
        if not data and not self._items.is_closed:
            raise InputError(
                f"{self._path}: its array never ends: fetch the file again if it is cut off"
            )
        return self._items.of(data) if data else data
