"""Reads XML: a row for each element of a given path, with its attributes and elements as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from compactor.common.counts import counted
from compactor.errors import InputError
from compactor.files.flat_texts import FlatTextBatches, TextRows
from compactor.files.json_arrays import MAX_COLUMNS
from compactor.files.layouts import XmlLayout
from compactor.files.problems import PROBLEMS, one_line
from compactor.files.readings import ALL_READINGS
from compactor.files.source import Piece
from compactor.files.xml_elements import Element, XmlRow, XmlRows
from compactor.files.xml_shapes import (
    TEXT,
    Group,
    Shape,
    aligned,
    as_text,
    children_of,
    texts_of,
    values_of,
)
from lsm_fragment.arrays.moves import keep

_Found = dict[str, tuple[list[int], list[Group]]]
"""By column, the rows that have it, and their elements."""


class XmlBatches(FlatTextBatches):
    """An open XML file; see `compactor.files.read.open_table_file`."""

    reads_ahead = False

    def __init__(self, layout: XmlLayout, *settings: Any, **options: Any) -> None:
        """settings, options: those of `TextBatches`."""
        self._layout = layout
        self._shapes: dict[str, Shape] = {}
        self._readings_from = ALL_READINGS if options["infers_types"] else ()
        super().__init__(*settings, **options)

    def _columns(self) -> Mapping[str, pa.DataType | None]:
        return dict.fromkeys(self._shapes)

    def _blocks(self) -> Iterator[TextRows]:
        self._elements = XmlRows(self.path, self._source, self._layout.row)
        for rows in self._elements.blocks():
            found = _children(rows)
            if self._is_learning:
                self._learn(found, rows[0].line)
            yield self._texts(rows, found)

    def _learn(self, found: _Found, line: int) -> None:
        for name, (_, groups) in found.items():
            self._shapes.setdefault(name, Shape(self._readings_from)).learn(groups)
        if sum(shape.width for shape in self._shapes.values()) > MAX_COLUMNS:
            raise InputError(
                f"{self.path}, line {line:,} or later: has more than {counted(MAX_COLUMNS, 'column')}, "
                "nested ones included: name an inner element as the row"
            )

    def _texts(self, rows: list[XmlRow], found: _Found) -> TextRows:
        bad: dict[int, str] = {}
        columns = [
            self._column(name, found.get(name, ([], [])), rows, bad) for name in self._columns()
        ]
        is_fit = ~np.isin(np.arange(len(rows)), list(bad))
        if bad:
            columns = [keep(column, is_fit) for column in columns]
        ordinals = np.array([row.ordinal for row in rows], np.int64)
        lines = np.array([row.line for row in rows], np.int64)
        reasons = [(rows[row].ordinal, reason) for row, reason in sorted(bad.items())]
        return TextRows(ordinals[is_fit], lines[is_fit], columns, reasons)

    def _column(
        self,
        name: str,
        found: tuple[list[int], list[Group]],
        rows: list[XmlRow],
        bad: dict[int, str],
    ) -> pa.Array:
        """Returns a column as texts, with nulls for the rows whose elements have another form."""
        dtype = self._text_type(name)
        places, groups = found
        try:
            return aligned(places, groups, len(rows), dtype)
        except ValueError:
            good = []
            for number, group in enumerate(groups):
                try:
                    texts_of([group], dtype)
                    good.append(number)
                except ValueError as error:
                    line = rows[places[number]].line
                    reason = (
                        f"{self.path}, line {line:,}: column {name!r} can't be read as "
                        f"{self._given[name].type} ({one_line(error)}): correct the element"
                    )
                    bad.setdefault(places[number], reason)
            some = [places[n] for n in good], [groups[n] for n in good]
            return aligned(*some, len(rows), dtype)

    def _text_type(self, name: str) -> pa.DataType:
        if name not in self._given:
            return self._shapes[name].dtype(as_text=True)
        try:
            return as_text(self._given[name].type)
        except PROBLEMS as error:
            raise InputError(f"{self.path}: column {name!r}: {one_line(error)}") from None

    def _learned_schema(self) -> pa.Schema:
        if not self._shapes and self._may_be_empty:
            self.lacks_columns = True
            return pa.schema([])
        if not self._shapes and self._given and self._elements.may_have_no_rows:
            return pa.schema(list(self._given.values()))
        if not self._shapes:
            raise InputError(f"{self.path}: {self._without_rows()}")
        return pa.schema(
            [
                self._given.get(name, pa.field(name, shape.dtype(as_text=False)))
                for name, shape in self._shapes.items()
            ]
        )

    def _without_rows(self) -> str:
        path = "/".join(self._layout.row)
        if self._given:
            return (
                f"has neither an element <{path}> nor those around it: name the element of a row, with those "
                "around it if there may be no rows"
            )
        which = f"<{path}>" if path else "within the outermost one"
        return (
            f"has no element {which} with anything in it, so there are no columns: name the element of a "
            "row"
        )

    def _must_be_parsed_again(self, piece: Piece) -> bool:
        return any(
            column.type != self._shapes[name].dtype(as_text=True)
            for name, column in piece.columns.items()
            if name not in self._given
        )

    def _fitted(self, piece: Piece) -> pa.RecordBatch:
        columns = [
            self._converted(piece.columns[field.name], field)
            if field.name in piece.columns
            else pa.nulls(piece.rows, field.type)
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _read(self, _name: str, texts: pa.Array, /) -> pa.Array:
        return texts

    def _converted(self, column: pa.Array, field: pa.Field) -> pa.Array:
        values = values_of(column, field.type, self._cells)
        if values.null_count and not field.nullable:
            raise ValueError("the table's column takes no nulls")
        return values


def _children(rows: list[XmlRow]) -> _Found:
    """Returns the elements of each column; a row's own text is one, too."""
    found = children_of([row.element for row in rows])
    texts = [row.element.text.strip() for row in rows]
    if any(texts):
        places = [place for place, text in enumerate(texts) if text]
        found[TEXT] = (places, [[Element(texts[place])] for place in places])
    return found
