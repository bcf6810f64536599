"""Reads lines whose columns have fixed places. Places and widths count characters.

Blanks around a value are dropped, and the padding on the side that the column is not aligned to. A value of
nothing else is null. A line may end within or before a column that is not aligned right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from compactor.files.csv_rows import SHOWN_CHARACTERS
from compactor.files.flat_texts import FlatTextBatches, TextRows
from compactor.files.layouts import Align, FixedColumn, FixedLayout
from compactor.files.records import Records, cut_records
from lsm_fragment import compute as pc
from lsm_fragment.arrays.moves import keep, take


class FixedBatches(FlatTextBatches):
    """An open file of columns of fixed width; see `compactor.files.read.open_table_file`."""

    def __init__(self, layout: FixedLayout, *settings: Any, **options: Any) -> None:
        """settings, options: those of `TextBatches`."""
        self._layout = layout
        super().__init__(*settings, **options)

    def _columns(self) -> Mapping[str, pa.DataType | None]:
        return {column.name: column.type for column in self._layout.columns}

    def _blocks(self) -> Iterator[TextRows]:
        for records in cut_records(self.path, self._source, None):
            yield self._cut(records)

    def _cut(self, records: Records) -> TextRows:
        is_sound, bad = self._sound(records)
        texts = keep(records.texts, is_sound)
        ordinals, lines = records.ordinals[is_sound], records.lines[is_sound]
        reasons = self._odd_lengths(texts)
        bad += [
            (int(ordinals[row]), f"{self.path}, line {lines[row]:,}: {reason}")
            for row, reason in reasons.items()
        ]
        if reasons:
            is_fit = ~np.isin(np.arange(len(texts)), list(reasons))
            texts, ordinals, lines = keep(texts, is_fit), ordinals[is_fit], lines[is_fit]
        columns = [_cells(texts, column) for column in self._layout.columns]
        return TextRows(ordinals, lines, columns, sorted(bad))

    def _odd_lengths(self, texts: pa.Array) -> dict[int, str]:
        """Returns what is wrong with lines that are too short or too long, by row."""
        lengths = np.asarray(pc.utf8_length(texts))
        end = self._layout.columns[-1].stop
        too_long = np.flatnonzero(lengths > end)
        rest = pc.utf8_length(pc.utf8_rtrim_whitespace(take(texts, too_long)))
        found = {
            int(row): f"has {lengths[row]:,} characters, but its columns end at {end:,}: "
            f"{texts[int(row)].as_py()[end:][:SHOWN_CHARACTERS]!r} is beyond them"
            for row, length in zip(too_long, rest.to_pylist(), strict=True)
            if length > end
        }
        for column in self._layout.columns:
            if column.align is Align.RIGHT:
                for row in np.flatnonzero((lengths > column.start) & (lengths < column.stop)):
                    reason = f"ends within column {column.name!r}, which is aligned right"
                    found.setdefault(int(row), f"{reason}: fetch the file again")
        return found


def _cells(texts: pa.Array, column: FixedColumn) -> pa.Array:
    cells = without_padding(pc.utf8_slice_codeunits(texts, column.start, column.stop), column)
    return pc.if_else(pc.equal(cells, ""), None, cells)


def without_padding(cells: pa.Array, column: FixedColumn) -> pa.Array:
    """Returns the values of cells; zeros before a number are padding, but not its last digit."""
    cells = pc.utf8_trim(cells, characters=" ")
    if column.pad == "0" and column.align is Align.RIGHT:
        cells = pc.replace_substring_regex(cells, r"^([+-]?)0+([0-9])", r"\1\2")
    elif column.pad != " ":
        trim = pc.utf8_ltrim if column.align is Align.RIGHT else pc.utf8_rtrim
        cells = trim(cells, characters=column.pad)
    return cells
