"""The columns of a JSON file: the table's with their given types, and others, whose types its values tell."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa

from compactor.errors import InputError
from compactor.files.json_arrays import FieldPath, JsonArrays, Misfit, UnreadableTypeError
from compactor.files.problems import PROBLEMS, ColumnError, UnknownColumnsError, one_line
from compactor.files.readings import TIME_READINGS, Readings
from compactor.files.source import Piece, Wanted
from compactor.files.text_values import from_wire
from lsm_fragment.failing import failing_rows
from lsm_fragment.native.arrays.json_rows import Trait


class JsonColumns:
    """The fields of a file, found block by block."""

    def __init__(
        self,
        path: str,
        known: pa.Schema | None,
        wanted: Wanted = None,
        mixed: Collection[FieldPath] = (),
        *,
        text_holds_all: bool = False,
        keeps_zones: bool = False,
    ) -> None:
        """Raises `InputError` if a column of the table has a type that JSON cannot hold.

        wanted: fields to make columns of; of others only the syntax is checked. mixed, text_holds_all: see
        `JsonArrays`.
        """
        self._path = path
        self._keeps_zones = keeps_zones
        self._wanted = wanted
        self.may_be_empty = self.lacks_columns = False
        self.known = known
        self.arrays = JsonArrays(wanted, mixed, text_holds_all=text_holds_all)
        self._given: set[str] = set()
        """Columns of the table that a line has named."""
        self._readings: dict[int, Readings] = {}
        """By node."""
        self._named: set[int] = set()
        """Nodes of columns of the table that the lines parsed last name."""
        self._rows = 0
        self._fields: dict[int, pa.Field] = {}
        try:
            for field in known or ():
                if wanted is None or field.name in wanted:
                    self._fields[self.arrays.declare(field.name, field.type)] = field
        except UnreadableTypeError as error:
            raise InputError(f"{path}: {error}: ingest the rows from a Parquet file") from None

    def _children(self) -> list[tuple[int, str]]:
        """Returns the wanted fields of rows by node; if there is none, the first, which counts the rows."""
        children = self.arrays.rows.children(0)
        if self._wanted is None:
            return list(children)
        return [child for child in children if child[1] in self._wanted] or list(children[:1])

    def field_of(self, node: int) -> pa.Field | None:
        """Returns the table's column that has the node."""
        return self._fields.get(self.arrays.rows.column_of(node))

    def parsed(self) -> tuple[dict[int, pa.Array], list[Misfit]]:
        """Returns the columns of the lines parsed last, by node, and the values that do not fit, by row."""
        self.arrays.misfits.clear()
        self._named = {node for node in self._fields if self.arrays.rows.length(node)}
        found = {node: self.arrays.array(node) for node, _ in self._children()}
        misfits = list(self.arrays.misfits)
        for node, field in self._fields.items():
            if node not in found:
                continue
            try:
                found[node] = fitted(found[node], field, keeps_zones=self._keeps_zones)
            except ColumnError:
                misfits += self._unfit(found[node], node, field)
        return found, sorted(misfits, key=lambda misfit: misfit.row)

    def _unfit(self, array: pa.Array, node: int, field: pa.Field) -> Iterator[Misfit]:
        def attempt(start: int, stop: int) -> pa.Array:
            return fitted(array[start:stop], field, keeps_zones=self._keeps_zones)

        failing = failing_rows(len(array), attempt, PROBLEMS)
        for row, error in failing:
            assert isinstance(error, ColumnError), f"not of fitted: {error!r}"
            yield Misfit(row, node, error.cause, error=error.__cause__)

    def learn(self, found: dict[int, pa.Array]) -> Piece:
        """Takes over rows without misfits: their texts narrow the types. Returns the columns by name."""
        rows = self.arrays.rows
        self._rows += rows.rows
        columns = {}
        for node, name in self._children():
            array = found[node]
            if node not in self._fields:
                array = self._read(node, array)
            elif node in self._named:
                self._given.add(name)
            columns[name] = array
        return Piece(rows.rows, columns)

    def _read(self, node: int, array: pa.Array) -> pa.Array:
        """Returns texts as the values that they have been so far. Nested ones stay texts."""
        kinds = self.arrays.rows.traits(node)
        if self.arrays.is_mixed(node):
            return array
        if kinds & Trait.IS_TEXT:
            if node not in self._readings:
                self._readings[node] = Readings(TIME_READINGS)
            return self._readings[node].read(array)
        if kinds & (Trait.IS_LIST | Trait.IS_OBJECT):
            # Nulls of a struct hide its fields' values, and have none.
            parts = [array.values] if kinds & Trait.IS_LIST else array.flatten()
            for (child, _), part in zip(self.arrays.rows.children(node), parts, strict=True):
                self._read(child, part)
        return array

    def schema(self) -> pa.Schema:
        """Returns the schema of the batches to read. Raises `InputError` if the file has no columns."""
        inferred = [
            pa.field(name, self._type(node))
            for node, name in self._children()
            if node not in self._fields
        ]
        given = [field for field in self._fields.values() if field.name in self._given]
        if not given and not inferred and not self._rows and self.may_be_empty:
            self.lacks_columns = True
            return pa.schema([])
        if not given and not inferred and self.known is not None:
            return self.known
        if not given and not inferred and self._rows and (children := self._children()):
            return pa.schema([(children[0][1], pa.null())])
        if not given and not inferred:
            lack = "none of its rows has a value" if self._rows else "has no rows"
            raise UnknownColumnsError(
                f"{self._path}: {lack}, so its columns are unknown: name another file"
            )
        return pa.schema(given + inferred)

    def _type(self, node: int) -> pa.DataType:
        """Returns the type that holds every value of a field."""
        rows = self.arrays.rows
        kinds = rows.traits(node)
        if self.arrays.is_mixed(node):
            return pa.string()
        if kinds & Trait.IS_TEXT:
            return self._readings[node].outcome
        if kinds & Trait.IS_LIST:
            [(item, _)] = rows.children(node)
            return pa.list_(self._type(item))
        if kinds & Trait.IS_OBJECT:
            return pa.struct([(name, self._type(child)) for child, name in rows.children(node)])
        if kinds & Trait.IS_BOOL:
            return pa.bool_()
        if kinds & Trait.IS_DOUBLE:
            return pa.float64()
        if kinds & Trait.IS_UINT:
            return pa.uint64()
        return pa.int64() if kinds else pa.null()


def fitted(array: pa.Array, field: pa.Field, *, keeps_zones: bool = False) -> pa.Array:
    """Converts parsed values to a column of `field`. Raises `ColumnError` if one does not fit."""
    try:
        column = from_wire(array, field.type, keeps_zones=keeps_zones)
    except PROBLEMS as error:
        raise ColumnError(field.name, field.type, one_line(error)) from error
    if column.null_count and not field.nullable:
        raise ColumnError(field.name, field.type, "the table's column takes no nulls")
    return column
