"""Finds the types of columns of texts, and converts them, for lines, columns of fixed width and XML."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from compactor.errors import InputError
from compactor.files.csv_rows import SHOWN_CHARACTERS
from compactor.files.json_arrays import UnreadableTypeError, check_readable
from compactor.files.problems import PROBLEMS, one_line
from compactor.files.readings import ALL_READINGS, Readings
from compactor.files.records import Records
from compactor.files.source import BadRow, Ordinals, Piece, TextBatches
from compactor.files.text_values import CellReader, from_wire
from lsm_fragment import compute as pc
from lsm_fragment.arrays.moves import keep, take
from lsm_fragment.failing import failing_rows


class TextRows(NamedTuple):
    """Rows of a block; empty texts are null."""

    ordinals: Ordinals
    lines: Ordinals
    columns: list[pa.Array]
    bad: list[tuple[int, str]]
    """Ordinals and reasons of the records that are no rows."""


class FlatTextBatches(TextBatches[TextRows]):
    """An open file whose rows are texts by column."""

    @abstractmethod
    def _columns(self) -> Mapping[str, pa.DataType | None]:
        """Returns the columns with the types that the layout gives them."""

    def _begin(self, known: pa.Schema | None) -> None:
        self._bad: dict[int, str] = {}
        self._rows = 0
        own = {name: dtype for name, dtype in self._columns().items() if dtype is not None}
        given = {name: pa.field(name, dtype) for name, dtype in own.items()}
        self._given = given | {field.name: field for field in known or ()}
        self._readings = {
            name: Readings(ALL_READINGS if self._infers_types else ())
            for name in self._columns()
            if name not in self._given
        }
        for readings in self._readings.values() if self.is_stream else ():
            readings.outcome = pa.string()  # a type could change at a later row
        for name in self._columns():
            try:
                if name in self._given:
                    check_readable(self._given[name].type)
            except UnreadableTypeError as error:
                raise InputError(f"{self.path}: column {name!r}: {error}: use Parquet") from None

    def _learned(self, block: TextRows) -> Iterator[Piece]:
        for ordinal, reason in block.bad:
            self._note(ordinal, reason)
        self._rows += len(block.ordinals)
        found = {}
        for name, column in zip(self._columns(), block.columns, strict=True):
            given = self._given.get(name)
            found[name] = (
                self._read(name, column) if given is None else self._checked(column, given, block)
            )
        self._keep(block)
        yield self._fit(block, list(found.values()))

    def _bad_rows(self) -> list[BadRow]:
        return [BadRow(*bad) for bad in sorted(self._bad.items())]

    def _take_bad_rows(self) -> list[BadRow]:
        bad = self._bad_rows()
        self._bad.clear()
        return bad

    def _learned_schema(self) -> pa.Schema:
        self.bad_rows = self._bad_rows()
        found = {
            # If no row is left, the columns are known only to be text.
            name: pa.field(
                name, readings.outcome if self._rows or not self._leaves_out else pa.string()
            )
            for name, readings in self._readings.items()
        }
        return pa.schema([(self._given | found)[name] for name in self._columns()])

    def _parsed(self, block: TextRows) -> Iterator[Piece]:
        yield self._fit(block, block.columns)

    def _fitted(self, piece: Piece) -> pa.RecordBatch:
        columns = [self._converted(piece.columns[field.name], field) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _values_of(self, texts: pa.Array, dtype: pa.DataType) -> pa.Array:
        return CellReader().values(texts, dtype)

    def _sound(
        self, records: Records, cause: str
    ) -> tuple[npt.NDArray[np.bool_], list[tuple[int, str]]]:
        """Returns which records are UTF-8, and the ordinals and reasons of the others."""
        is_sound = np.ones(len(records.texts), dtype=np.bool_)
        try:
            records.texts.validate(full=True)
        except PROBLEMS:
            failing = failing_rows(
                len(records.texts),
                lambda start, stop: records.texts[start:stop].validate(full=True),
                PROBLEMS,
            )
            is_sound[[row for row, _ in failing]] = False
        bad = [
            (int(records.ordinals[row]), f"{self.path}, line {records.lines[row]:,}: {cause}")
            for row in np.flatnonzero(~is_sound)
        ]
        return is_sound, bad

    def _note(self, ordinal: int, reason: str) -> None:
        """Records a bad row, or raises its reason."""
        if not self._leaves_out:
            raise InputError(reason)
        self._bad.setdefault(ordinal, reason)

    def _read(self, name: str, texts: pa.Array, /) -> pa.Array:
        """Returns texts as the values that they have been so far, or as they are."""
        readings = self._readings[name]
        if pt.is_string(readings.outcome):
            return texts
        values = readings.read(pc.ascii_trim_whitespace(texts))
        return texts if pt.is_string(values.type) else values

    def _checked(self, texts: pa.Array, field: pa.Field, block: TextRows) -> pa.Array:
        """Returns the values, or the texts if some of them do not fit, which are bad rows."""
        try:
            return self._converted(texts, field)
        except PROBLEMS:
            failing = failing_rows(
                len(texts), lambda start, stop: self._converted(texts[start:stop], field), PROBLEMS
            )
            for row, error in failing:
                value = texts[row].as_py()
                shown = "an empty text" if value is None else repr(value)[:SHOWN_CHARACTERS]
                reason = (
                    f"{self.path}, line {block.lines[row]:,}: column {field.name!r}: {shown} can't be "
                    f"read as {field.type} ({one_line(error)}): correct the value or leave it empty"
                )
                self._note(int(block.ordinals[row]), reason)
        return texts

    def _are_fit(self, ordinals: Ordinals) -> npt.NDArray[np.bool_]:
        return ~np.isin(ordinals, np.fromiter(self._bad, np.int64))

    def _fit(self, block: TextRows, columns: list[pa.Array]) -> Piece:
        is_fit = (
            self._are_fit(block.ordinals) if self._bad else np.ones(len(block.ordinals), np.bool_)
        )
        if not is_fit.all():
            columns = [keep(column, is_fit) for column in columns]
        return Piece(int(is_fit.sum()), dict(zip(self._columns(), columns, strict=True)))

    def _keep(self, block: TextRows) -> None:
        """Stores the texts of the kept column for rows that do not fit."""
        names = list(self._columns())
        if self._kept_column not in names or not self._bad:
            return
        column = block.columns[names.index(self._kept_column)]
        if not pt.is_string(column.type):
            return
        rows = np.flatnonzero(~self._are_fit(block.ordinals))
        texts = take(column, rows).to_pylist()
        found = zip(block.ordinals[rows].tolist(), texts, strict=True)
        self._kept.update((ordinal, text) for ordinal, text in found if text is not None)

    def _converted(self, column: pa.Array, field: pa.Field) -> pa.Array:
        """Converts texts, or the values that they were read as, to a type."""
        is_text = pt.is_string(column.type)
        values = (
            CellReader().values(column, field.type) if is_text else from_wire(column, field.type)
        )
        if values.null_count and not field.nullable:
            raise ValueError("the table's column takes no nulls")
        return values
