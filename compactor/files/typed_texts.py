"""Converts columns of texts to values: of types that are given, or that the texts tell."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from compactor.errors import InputError
from compactor.files.csv_rows import SHOWN_CHARACTERS
from compactor.files.json_arrays import UnreadableTypeError, check_readable
from compactor.files.problems import PROBLEMS, one_line
from compactor.files.readings import ALL_READINGS, Readings
from compactor.files.source import BadRow, Block, Ordinals, Piece, TextBatches
from compactor.files.text_values import CellReader, from_wire
from lsm_fragment import compute as pc
from lsm_fragment.arrays.moves import take
from lsm_fragment.failing import failing_rows


class TypedTexts(TextBatches[Block]):
    """An open file whose columns are texts."""

    _value: ClassVar[str] = "text"
    _it: ClassVar[str] = "it"
    """A value in the file, for messages, and how they call it again."""

    @abstractmethod
    def _names_read(self) -> Collection[str]:
        """Returns the columns that are read."""

    def _set_types(self, names: Collection[str], given: Mapping[str, pa.Field]) -> None:
        """Prepares for the columns of a file. given: those whose types are known."""
        self._bad: dict[int, str] = {}
        """Reasons of bad rows by their ordinals."""
        self._bad_texts: dict[int, str] = {}
        self._rows = 0
        self._given = dict(given)
        self._cells = CellReader(self._options.decimal, keeps_zones=self._keeps_zones)
        candidates = ALL_READINGS if self._infers_types else ()
        self._readings = {
            name: Readings(candidates, self._cells.scalars) for name in names if name not in given
        }
        for readings in self._readings.values() if self.is_stream else ():
            readings.outcome = pa.string()  # a type could change at a later row
        for name in self._names_read():
            try:
                if name in given:
                    check_readable(given[name].type)
            except UnreadableTypeError as error:
                raise InputError(f"{self.path}: column {name!r}: {error}: use Parquet") from None

    def _read(self, name: str, texts: pa.Array, /) -> pa.Array:
        """Returns texts as the values that they have been so far, or as they are."""
        readings = self._readings[name]
        if pt.is_string(readings.outcome):
            return texts
        values = readings.read(pc.ascii_trim_whitespace(texts))
        return texts if pt.is_string(values.type) else values

    def _learned_schema(self) -> pa.Schema:
        self.is_untyped = self._leaves_out and not self._rows
        found = {
            name: pa.field(name, pa.string() if self.is_untyped else readings.outcome)
            for name, readings in self._readings.items()
        }
        return pa.schema([(self._given | found)[name] for name in self._names_read()])

    def _bad_rows(self) -> list[BadRow]:
        texts = self._bad_texts
        return [BadRow(row, why, texts.get(row, "")) for row, why in sorted(self._bad.items())]

    def _take_bad_rows(self) -> list[BadRow]:
        bad = self._bad_rows()
        self._bad.clear()
        self._bad_texts.clear()
        return bad

    def _note(self, ordinal: int, reason: str) -> None:
        """Records a bad row, or raises its reason."""
        if not self._leaves_out:
            raise InputError(reason)
        self._bad.setdefault(ordinal, reason)
        self._check_bad_rows(len(self._bad), reason)

    def _are_fit(self, ordinals: Ordinals) -> npt.NDArray[np.bool_]:
        if not self._bad:
            return np.ones(len(ordinals), np.bool_)
        return ~np.isin(ordinals, np.fromiter(self._bad, np.int64))

    def _keep(self, ordinals: Ordinals, texts: pa.Array) -> None:
        """Stores the texts of the kept column for rows that do not fit."""
        rows = np.flatnonzero(~self._are_fit(ordinals))
        found = zip(ordinals[rows].tolist(), take(texts, rows).to_pylist(), strict=True)
        self._kept.update((ordinal, text) for ordinal, text in found if text is not None)

    def _fitted(self, piece: Piece) -> pa.RecordBatch:
        columns = [self._converted(piece.columns[field.name], field) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _values_of(self, texts: pa.Array, dtype: pa.DataType) -> pa.Array:
        return self._cells.values(texts, dtype)

    def _converted(self, column: pa.Array, field: pa.Field) -> pa.Array:
        """Converts texts, or the values that they were read as, to a type."""
        is_text = pt.is_string(column.type)
        values = (
            self._cells.values(column, field.type) if is_text else from_wire(column, field.type)
        )
        if values.null_count and not field.nullable:
            raise ValueError("the table's column takes no nulls")
        return values

    def _checked(
        self, texts: pa.Array, field: pa.Field, ordinals: Ordinals, place: Callable[[int], str]
    ) -> pa.Array:
        """Returns the values, or the texts if some of them do not fit, which are bad rows.

        place: returns that of a row in the block, for messages.
        """
        try:
            return self._converted(texts, field)
        except PROBLEMS:
            failing = failing_rows(
                len(texts), lambda start, stop: self._converted(texts[start:stop], field), PROBLEMS
            )
            for row, error in failing:
                value = texts[row].as_py()
                # Texts of XML may be nested.
                short = value[:SHOWN_CHARACTERS] if isinstance(value, str) else value
                shown = f"an empty {self._value}" if value is None else repr(short)
                left_out = f"{self._it} empty" if field.nullable else "the row out"
                reason = (
                    f"{place(row)}: column {field.name!r}: {shown} can't be read as {field.type} "
                    f"({one_line(error)}): correct the value or leave {left_out}"
                )
                self._note(int(ordinals[row]), reason)
        return texts
