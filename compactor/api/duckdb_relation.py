"""A version of a table as a relation of DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from compactor.errors import UsageError

if TYPE_CHECKING:
    from compactor.api.view import TableView


def duckdb_relation(view: TableView, connection: Any, name: str) -> Any:
    """Gives a version a name in a connection. view: stays at its version.

    Raises `UsageError` for a type that DuckDB lacks.
    """
    import duckdb

    try:
        connection.register(name, view.dataset())
    except duckdb.Error:
        if (lacking := _lacking(view.schema)) is None:
            raise
        raise UsageError(
            f"to_duckdb: column {lacking.name!r} is {lacking.type}, which DuckDB can't read: read the other "
            "columns by `connection.from_arrow(table.scan([...]).to_table())`"
        ) from None
    return connection.table(name)


def _lacking(schema: pa.Schema) -> pa.Field | None:
    """Returns the first column of a type that DuckDB lacks; its error does not name the column."""
    import duckdb

    for field in schema:
        with duckdb.connect() as connection:
            try:
                connection.register("column", pa.schema([field]).empty_table())
            except duckdb.Error:
                return field
    return None
