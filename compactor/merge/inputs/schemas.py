"""Says how columns of inputs become those of the table. Inputs of equal schemas share one answer, because a
thousand copies of a schema would add up."""

from __future__ import annotations

import pyarrow as pa
from msgspec import Struct

from compactor.merge.errors import InputMismatchError
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.arrays.widening import becomes_json, converts_to, is_stored_as
from lsm_fragment.container.header import FragmentHeader


class InputSchema(Struct, frozen=True):
    """The schema of inputs, compared with the table's."""

    schema: pa.Schema
    is_as_wide: bool
    """Whether every column is stored in the table's type, and the table has dropped none."""
    is_converted: bool
    """Whether the written rows hash differently: the table has dropped a column, or values are converted."""

    @classmethod
    def compared(cls, schema: pa.Schema, table: pa.Schema, name: str) -> InputSchema:
        """name: an input that has it. Raises `InputMismatchError` for a type that cannot be read as the
        table's."""
        stored = [field for field in schema if table.get_field_index(field.name) >= 0]
        types = [(field.type, table.field(field.name).type) for field in stored]
        for field, (ours, expected) in zip(stored, types, strict=True):
            if not is_stored_as(ours, expected):
                raise InputMismatchError(
                    f"{name}: column {field.name!r} is of type {ours}, the table's is {expected}",
                    name=name,
                )
        pairs = [(storage_type(ours), storage_type(expected)) for ours, expected in types]
        is_json = any(becomes_json(ours, expected) for ours, expected in types)
        is_whole = len(stored) == len(schema)
        return cls(
            schema,
            is_whole and not is_json and all(ours == expected for ours, expected in pairs),
            not is_whole or is_json or any(converts_to(ours, expected) for ours, expected in pairs),
        )


class InputSchemas:
    """The distinct schemas of the inputs of one merge."""

    def __init__(self, table: pa.Schema) -> None:
        self.table = table
        self._known: list[InputSchema] = []

    def of(self, header: FragmentHeader, name: str) -> InputSchema:
        """Returns the schema of an input. name: for errors. Raises what `InputSchema.compared` raises."""
        schema = header.schema
        for known in self._known:
            if known.schema is schema or known.schema.equals(schema, check_metadata=True):
                return known
        self._known.append(InputSchema.compared(schema, self.table, name))
        return self._known[-1]

    def column_names(self) -> set[str]:
        """Returns the names of the columns that any input has."""
        return {name for known in self._known for name in known.schema.names}
