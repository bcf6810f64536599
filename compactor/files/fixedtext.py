"""Renders Arrow batches as lines of fixed width.

A value that its column has no room for is refused, and so is one that padding other than blanks would change.
"""

from __future__ import annotations

from codecs import BOM_UTF8

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from compactor.files.csv_rows import SHOWN_CHARACTERS
from compactor.files.fixed import without_padding
from compactor.files.jsontext import text_bytes
from compactor.files.layouts import Align, FixedColumn, FixedLayout
from compactor.files.plain_text import UnwritableError, plain_text
from lsm_fragment import compute as pc
from lsm_fragment.arrays.json_texts import joined, text_scalar
from lsm_fragment.arrays.storage import decoded, to_storage


class FixedLines:
    """Renders the batches of one file, in order."""

    def __init__(self, layout: FixedLayout) -> None:
        self._columns = layout.columns
        self._rows = 0

    def __call__(self, batch: pa.RecordBatch) -> bytes:
        """Returns one line per row. Raises `UnwritableError` naming column and row."""
        parts: list[pa.Array | pa.Scalar] = []
        before = 0
        for column in self._columns:
            parts.append(text_scalar(" " * (column.start - before)))
            parts.append(self._cells(batch.column(column.name), column))
            before = column.stop
        self._rows += batch.num_rows
        return text_bytes(joined(*parts, text_scalar("\n"))) if batch.num_rows else b""

    def _cells(self, array: pa.Array, column: FixedColumn) -> pa.Array:
        array = to_storage(array)
        if pt.is_dictionary(array.type):
            array = to_storage(decoded(array))
        text = plain_text(array)
        self._check(text, column)
        is_number = (
            pt.is_integer(array.type) or pt.is_floating(array.type) or pt.is_decimal(array.type)
        )
        align = column.align or (Align.RIGHT if is_number else Align.LEFT)
        if column.pad == "0" and is_number and align is Align.RIGHT:
            cells = pc.utf8_zero_fill(text, column.width)
        else:
            fill = pc.utf8_lpad if align is Align.RIGHT else pc.utf8_rpad
            cells = fill(text, column.width, padding=column.pad)
        if column.pad != " ":
            self._check_read_back(text, cells, column)
        if column.start == 0 and self._rows == 0:
            is_mark = pc.starts_with(cells[:1], BOM_UTF8.decode())
            self._refuse(
                text, is_mark, column, "would be read as the mark of UTF-8: align it right"
            )
        return pc.fill_null(cells, " " * column.width)

    def _check(self, text: pa.Array, column: FixedColumn) -> None:
        is_long = pc.greater(pc.utf8_length(text), column.width)
        self._refuse(
            text,
            is_long,
            column,
            f"does not fit into {column.width:,} characters: widen the column",
        )
        has_break = pc.match_substring_regex(text, r"[\r\n]")
        self._refuse(text, has_break, column, "has a line break, which a line has no place for")

    def _check_read_back(self, text: pa.Array, cells: pa.Array, column: FixedColumn) -> None:
        read = without_padding(cells, column)
        trimmed = pc.utf8_trim(text, characters=" ")  # as reading does, whatever pads a value
        is_changed = pc.and_(pc.not_equal(read, text), pc.not_equal(read, trimmed))
        if (row := pc.index(is_changed, True).as_py()) >= 0:
            cause = f"would be read back as {read[row].as_py()[:SHOWN_CHARACTERS]!r}"
            advice = f"because `pad` is {column.pad!r}: choose another `pad`"
            self._refuse(text, is_changed, column, f"{cause}, {advice}")

    def _refuse(self, text: pa.Array, is_bad: pa.Array, column: FixedColumn, cause: str) -> None:
        rows = np.flatnonzero(is_bad.fill_null(False).to_numpy(zero_copy_only=False))
        if len(rows):
            shown = text[int(rows[0])].as_py()[:SHOWN_CHARACTERS]
            raise UnwritableError(
                f"row {self._rows + int(rows[0]) + 1:,}, column {column.name!r}: {shown!r} {cause}"
            )


def check_fixed(schema: pa.Schema, layout: FixedLayout) -> None:
    """Raises `UnwritableError` unless the layout has a place for each column, and no others."""
    placed = [column.name for column in layout.columns]
    if missing := [name for name in placed if name not in schema.names]:
        raise UnwritableError(f"`fixed` has a column {missing[0]!r}, which the rows do not have")
    if more := [name for name in schema.names if name not in placed]:
        raise UnwritableError(
            f"`fixed` has no place for the column {more[0]!r}: give it a width, or leave it out"
        )
