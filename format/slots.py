"""Arranges the variables of templated arrays by slots, as chunks store them, and back (SPEC section 5).

A slot is a place of a template for a variable. Values of one slot are alike, so that they take far fewer bits
than the variables of one row after those of another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from format import native
from format.alphabets import BITS
from format.native.bits import BLOCK_VALUES, ENTRY_BYTES, most_bytes
from format.nodes import binary_parts, fixed_width_view
from format.sizes import running_totals
from format.templates import (
    I32,
    I64,
    SLACK_BYTES,
    U8,
    U64,
    Layout,
    binaries,
    layout_of,
    room_for,
    rows_of,
    templates_of,
)

NUMBER: Final = 0x11
"""The mark of a variable of 1 to 19 digits."""
PACKED: Final = 1
"""The form of a slot of which the numbers are packed; 0 if they are text."""
FORMS: Final = 2
_MAX_OFFSET_32: Final = 2**31 - 1
_TEMPLATE_BYTES: Final = 48
_SLOT_BYTES: Final = 96


@dataclass(frozen=True, slots=True)
class StoredSlots:
    """Variables as they are stored."""

    forms: U8
    """For each slot of numbers, whether they are packed. Shape (slots of numbers,)."""
    packed: U8
    """Entries of blocks, then their data."""
    text_sizes: I64
    """The bytes of each slot that is not packed."""
    texts: U8
    alphabets: U64
    """The bytes of each slot that has no numbers (`format.alphabets`)."""
    text_bytes: int
    """The bytes of the rows' strings."""
    decoding_bytes: int
    """What a reader needs beside the text: numbers, and what it knows of each slot."""


def store(array: pa.Array) -> StoredSlots:
    """Arranges the variables of a templated array by slots."""
    layout, rows = layout_of(templates_of(array)), rows_of(array)
    kinds = layout.kinds
    are_numbers = kinds == NUMBER
    by_template = np.zeros(len(layout.firsts) - 1, dtype=np.int64)
    native.slots.rows_of_templates(rows.codes, rows.valid, rows.first_bit, by_template)
    counts = np.repeat(by_template, np.diff(layout.firsts))
    sizes = np.zeros(len(kinds), dtype=np.int64)
    have_texts = np.empty(len(by_template), dtype=np.uint8)
    native.slots.text_sizes(layout.firsts, kinds, *rows, have_texts, sizes)
    starts = running_totals(counts[are_numbers])
    text_stops = running_totals(sizes[~are_numbers])
    places = np.empty(len(kinds), dtype=np.int64)
    places[are_numbers], places[~are_numbers] = starts[:-1], text_stops[:-1]
    numbers = room_for(int(starts[-1]), np.uint64)
    own_texts = room_for(int(text_stops[-1]), np.uint8)
    native.slots.scatter(layout.firsts, kinds, *rows, places, numbers, own_texts)
    alphabets = np.empty(len(text_stops) - 1, dtype=np.uint64)
    native.slots.alphabets(text_stops, own_texts, BITS, alphabets)
    forms = np.empty(len(starts) - 1, dtype=np.uint8)
    number_sizes = np.empty(len(forms), dtype=np.int64)
    blocks, digits = native.slots.choose(starts, numbers, forms, number_sizes)
    text_values = _total(counts[~are_numbers])
    text_bytes = len(own_texts) - text_values + digits + constant_bytes(layout, by_template)
    sizes[are_numbers] = number_sizes
    texts = room_for(_total(sizes) + SLACK_BYTES, np.uint8)
    in_blocks = int(counts[are_numbers][forms == PACKED].sum())
    packed = room_for(ENTRY_BYTES * 2 * blocks + most_bytes(in_blocks), np.uint8)
    used = native.slots.store(
        starts, numbers, kinds, forms, text_stops[1:], own_texts, packed, blocks, texts
    )
    is_text = ~are_numbers
    is_text[are_numbers] = forms != PACKED
    return StoredSlots(
        forms,
        packed[: ENTRY_BYTES * blocks + used],
        sizes[is_text],
        texts[:-SLACK_BYTES],
        alphabets,
        text_bytes,
        slots_bytes(len(layout.firsts), len(kinds)) + numbers.nbytes + len(texts),
    )


def slots_bytes(templates: int, slots: int) -> int:
    """Returns what a reader keeps of templates and slots while it decodes."""
    return _TEMPLATE_BYTES * templates + _SLOT_BYTES * slots


@dataclass(frozen=True, slots=True)
class LoadedSlots:
    """Variables by slots, checked."""

    layout: Layout
    rows: tuple[I32, U8 | None, int]
    """The rows' codes, their validity, and the bit at which that begins."""
    places: I64
    numbers: U64
    texts: U8
    size: int
    """The most bytes of the rows' variables, or those of their text."""
    charge: Callable[[int], None]

    def by_rows(self) -> pa.Array:
        """Returns the variables of each row, as templated arrays have them."""
        codes = self.rows[0]
        _check_reach(self.size)
        self.charge(4 * len(codes) + self.size)
        ends = np.empty(len(codes) + 1, dtype=np.int32)
        variables = room_for(self.size + SLACK_BYTES, np.uint8)
        native.slots.by_rows(
            self.layout.firsts, self.layout.kinds, *self.rows,
            self.places.copy(), self.numbers, self.texts, ends, variables,
        )  # fmt: skip
        return binaries(ends, variables[: ends[-1]])

    def text(self, is_large: bool, chosen: U8 | None) -> list[pa.Buffer]:
        """Returns offsets, of 64 bits if `is_large`, and bytes of the rows' strings.

        chosen: 1 for the rows to return, 0 for others; None for all.
        """
        rows = len(self.rows[0]) if chosen is None else int(np.count_nonzero(chosen))
        if not is_large:
            _check_reach(self.size)
        self.charge((8 if is_large else 4) * rows + self.size)
        offsets = np.empty(rows + 1, dtype=np.int64 if is_large else np.int32)
        text = room_for(self.size + SLACK_BYTES, np.uint8)
        native.slots.as_text(
            *self.layout, *self.rows, chosen,
            self.places, self.numbers, self.texts, offsets, text,
        )  # fmt: skip
        used = int(offsets[-1])
        if used < self.size // 2:  # a part must not hold the memory of the whole
            text = text[:used].copy()
        return [pa.py_buffer(offsets), pa.py_buffer(text[:used])]


def load(
    layout: Layout,
    alphabets: U64,
    codes: pa.Array,
    forms: I32,
    packed: U8,
    texts: pa.Array,
    charge: Callable[[int], None],
    *,
    for_rows: bool,
) -> LoadedSlots:
    """Reads stored slots, of which nothing is believed. Raises `ValueError` if they contradict themselves.

    alphabets: of each slot. codes: below the number of templates. forms: one below `FORMS` for each slot of
    numbers. texts: without nulls. charge: called with sizes before memory is allocated for them. for_rows:
    whether `by_rows` is wanted, or else `text`.
    """
    rows = (fixed_width_view(codes, np.int32), *native.validity(codes))
    by_template = np.zeros(len(layout.firsts) - 1, dtype=np.int64)
    native.slots.rows_of_templates(*rows, by_template)
    counts = np.repeat(by_template, np.diff(layout.firsts))
    are_numbers = layout.kinds == NUMBER
    are_packed = np.zeros(len(counts), dtype=np.bool_)
    are_packed[are_numbers] = forms == PACKED
    blocks = _total(-(-counts[are_packed] // BLOCK_VALUES))
    offsets, data = binary_parts(texts)
    # Both are checked before numbers take memory: entries and texts are there, and bound how many there are.
    if ENTRY_BYTES * blocks > len(packed):
        raise ValueError("templates name more blocks of numbers than there are")
    if len(texts) != len(counts) - _total(are_packed) or _total(counts[~are_packed]) > len(data):
        raise ValueError("templates name other texts than there are")
    count = _total(counts[are_numbers])
    charge(8 * count + len(data))
    text = room_for(len(data) + SLACK_BYTES, np.uint8)
    text[: len(data)] = native.as_bytes(data)
    numbers = room_for(count, np.uint64)
    places = np.empty(len(counts), dtype=np.int64)
    found = np.empty(len(texts), dtype=np.uint64)
    ends = native.slots.alphabets(offsets.astype(np.int64), text, BITS, found)
    if ends != _total(counts[~are_packed]) or np.any(found & ~alphabets[~are_packed]):
        raise ValueError("variables of templates have bytes that their slots do not state")
    size = native.slots.take(
        layout.kinds, forms.astype(np.uint8), counts, packed, blocks,
        offsets.astype(np.int64), text, for_rows, numbers, places,
    )  # fmt: skip
    if not for_rows:
        size += constant_bytes(layout, by_template)
    return LoadedSlots(layout, rows, places, numbers, text, size, charge)


def constant_bytes(layout: Layout, by_template: I64) -> int:
    """Returns the bytes of what rows have beside variables. by_template: the rows of each template."""
    return _total((np.diff(layout.offsets) - np.diff(layout.firsts)) * by_template)


def _check_reach(size: int) -> None:
    if size > _MAX_OFFSET_32:
        raise ValueError(f"{size} bytes in one chunk exceed 32-bit offsets")


def _total(values: npt.NDArray[Any]) -> int:
    return int(values.sum(dtype=np.int64))
