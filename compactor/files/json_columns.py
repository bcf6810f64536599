"""Infers the columns of a JSON file block by block."""

from __future__ import annotations

import copy
import json

import pyarrow as pa

from compactor.errors import InputError
from compactor.files.json_blocks import parse_block
from compactor.files.json_fields import Fields, fields_in_lists, pieces
from compactor.files.json_kept import with_json_as_text
from compactor.files.json_numbers import RoundedError, check_floats
from compactor.files.problems import PROBLEMS, ColumnError, one_line
from compactor.files.shapes import (
    JsonShape,
    exact_instead_of_rounded,
    text_instead_of_times,
)
from compactor.files.text_values import UnreadableTypeError, float_type, from_wire, wire_type


class JsonColumns:
    """The columns of a file: the table's with their given types, other fields with inferred types."""

    def __init__(self, path: str, known: pa.Schema | None) -> None:
        """Raises `InputError` if a column of the table has a type that JSON cannot hold."""
        self._path = path
        self._has_table = known is not None
        self.known: pa.Schema = pa.schema([]) if known is None else known
        self._shapes: dict[str, JsonShape] = {}
        self._fields = Fields()
        self._given: set[str] = set()
        self._rows = 0
        try:
            self._known_wire = {field.name: wire_type(field.type) for field in self.known}
            self._known_in_lists = fields_in_lists(pa.schema(list(self._known_wire.items())))
            self._known_floats = {field.name: float_type(field.type) for field in self.known}
        except UnreadableTypeError as error:
            raise InputError(f"{path}: {error}: ingest the rows from a Parquet file") from None

    def absorb(self, lines: bytes) -> None:
        """Updates the columns from `lines`. Raises one of `PROBLEMS` if they contradict the table or earlier
        lines, and `TooManyColumnsError`."""
        text = with_json_as_text(lines, self.known)
        for piece in pieces(text, self.count, self._known_in_lists):
            self._absorb(piece)

    @property
    def count(self) -> int:
        """Number of columns so far, nested fields included."""
        return len(self.known) + self._fields.count

    def _absorb(self, lines: bytes) -> None:
        pinned = {name: dtype for name, s in self._shapes.items() if (dtype := s.pinned)}
        batch = self._with_times_as_text(lines, self._known_wire | pinned)
        found = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if name in self._known_wire:
                fitted(column, self.known.field(name))
                if column.null_count < len(column) or json.dumps(name).encode() in lines:
                    self._given.add(name)
            else:
                found[name] = _exact(lines, name, column)
                if name not in self._shapes:
                    self._shapes[name] = JsonShape(self._fields, (name,))
                self._shapes[name].absorb(found[name], name)
        self._check_floats(
            lines, {**dict(zip(batch.schema.names, batch.columns, strict=True)), **found}
        )
        self._rows += batch.num_rows

    def _check_floats(self, lines: bytes, columns: dict[str, pa.Array]) -> None:
        types = self._known_floats | {
            name: float_type(column.type)
            for name, column in columns.items()
            if name not in self._known_floats
        }
        try:
            check_floats(lines, columns, types)
        except RoundedError as error:
            if error.column not in self._known_floats:
                raise
            dtype = self.known.field(error.column).type
            raise ColumnError(error.column, dtype, "it does not hold it exactly") from error

    def would_absorb(self, lines: bytes) -> None:
        """Raises what `absorb` would raise, without an update."""
        copy.deepcopy(self).absorb(lines)

    def schema(self) -> pa.Schema:
        """Returns the schema of the batches to read. Raises `InputError` if the file has no columns."""
        found = [pa.field(name, shape.outcome) for name, shape in self._shapes.items()]
        fields = [field for field in self.known if field.name in self._given] + found
        if not fields and self._has_table:
            return self.known
        if not fields:
            lack = "none of its rows has a value" if self._rows else "has no rows"
            raise InputError(f"{self._path}: {lack}, so its columns are unknown: name another file")
        return pa.schema(fields)

    def wire_schema(self) -> pa.Schema:
        """Returns the types as which the fields of the file are parsed."""
        found = {name: wire_type(shape.outcome) for name, shape in self._shapes.items()}
        return pa.schema(list((self._known_wire | found).items()))

    def _with_times_as_text(self, lines: bytes, types: dict[str, pa.DataType]) -> pa.RecordBatch:
        batch = parse_block(lines, pa.schema(list(types.items())))
        guessed = {
            field.name: text
            for field in batch.schema
            if field.name not in self._known_wire
            and (text := text_instead_of_times(field.type)) != field.type
        }
        if not guessed:
            return batch
        again = parse_block(lines, pa.schema(list((types | guessed).items())))
        return again.select(batch.schema.names)


def fitted(array: pa.Array, field: pa.Field) -> pa.Array:
    """Converts parsed values to a column of `field`. Raises `ColumnError` if one does not fit."""
    try:
        column = from_wire(array, field.type)
    except PROBLEMS as error:
        raise ColumnError(field.name, field.type, one_line(error)) from error
    if column.null_count and not field.nullable:
        raise ColumnError(field.name, field.type, "the table's column takes no nulls")
    return column


def _exact(lines: bytes, name: str, column: pa.Array) -> pa.Array:
    dtype = exact_instead_of_rounded(column)
    if dtype == column.type:
        return column
    try:
        types = pa.schema([(name, dtype)])
        return parse_block(lines, types, other_fields="ignore").column(name)
    except PROBLEMS:
        return column  # `_check_floats` finds the values that doubles cannot hold.
