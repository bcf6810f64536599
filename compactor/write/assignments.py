"""Binds what an update assigns to columns, and computes it for rows."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from compactor.errors import DataError, UsageError
from compactor.predicate.computed import Expression
from compactor.predicate.expressions.conversion import converted
from compactor.predicate.expressions.kinds import kind_of
from compactor.rows.bounded_keys import KEY_OF
from compactor.table.key_text import condition_of_key
from compactor.table.metadata import TableMetadata
from compactor.table.not_null import null_place
from lsm_fragment.arrays.cast import as_type, cast_exactly
from lsm_fragment.arrays.storage import to_logical, to_storage
from lsm_fragment.arrays.types import is_list_like, storage_type, uncoded_type
from lsm_fragment.errors import SchemaError
from lsm_fragment.failing import failing_rows
from lsm_fragment.names import names_text
from lsm_fragment.value_errors import OF_VALUES, first_line

_BECOMES: Final = {"integer": ("decimal", "float"), "decimal": ("float",), "date": ("timestamp",)}
"""Kinds of columns, beside their own, that take values of a kind."""
_REFUSED: Final = (*OF_VALUES, SchemaError)


class Assignment(NamedTuple):
    column: pa.Field
    """As the table shows it."""
    values: Callable[[pa.RecordBatch], pa.Array]
    """Computes the new values of rows with the columns that the table shows."""


def bound_assignments(table: TableMetadata, given: Mapping[str, Any]) -> list[Assignment]:
    """Returns the assignments to columns of a table.

    given: by shown name, the text of an expression, or a value of another type than text.
    Raises `UsageError` for an unknown column, one that may not be set, and a type that does not fit.
    """
    if not given:
        raise UsageError("set: it names no column; give columns with their new values")
    shown = table.shown_schema
    fixed = _fixed_columns(table)
    assignments = []
    for name, value in given.items():
        if name not in shown.names:
            raise UsageError(f"set: no column {name!r}; columns are: {names_text(shown.names)}")
        if name in fixed:
            raise UsageError(f"set: column {name!r} {fixed[name]}")
        field = shown.field(name)
        if isinstance(value, str):
            assignments.append(_expression(field, value, shown))
        else:
            assignments.append(_value(field, value))
    return assignments


def changed(
    batch: pa.RecordBatch, assignments: Sequence[Assignment], table: TableMetadata
) -> pa.RecordBatch:
    """Returns rows with their new values. All expressions see the rows as they were.

    Raises `DataError`, with the key of the row, for a value that an expression or a column can't take.
    """
    columns = {name: batch.column(name) for name in batch.schema.names}
    for assignment in assignments:
        columns[assignment.column.name] = _computed(batch, assignment, table)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _fixed_columns(table: TableMetadata) -> dict[str, str]:
    """Returns the columns that may not be set, with the reason."""
    fixed = {}
    if table.rows.merges:
        for column in table.rows.key_columns(table.sort):
            fixed[table.shown_name(column.column)] = (
                "is part of the key, by which the table merges rows: delete the rows, and append others"
            )
    source = dict(table.remembered).get(KEY_OF)
    if source is not None:
        fixed[table.shown_name(source)] = "belongs to an entity merge, which writes it"
    return fixed


def _expression(field: pa.Field, text: str, shown: pa.Schema) -> Assignment:
    what = f"set: column {field.name!r}"
    expression = Expression(text, shown, what)
    if not _fits(expression.type, field.type):
        raise UsageError(
            f"{what} is {field.type}, and {text!r} is {expression.type}: convert it by CAST, and write texts "
            "in 'single' quotes"
        )
    return Assignment(field, expression)


def _value(field: pa.Field, value: object) -> Assignment:
    dtype = uncoded_type(field.type)
    is_moment = isinstance(value, np.datetime64 | np.timedelta64)  # It equals its number of units.
    try:
        plain = _as_stored(value, dtype)
        if plain is None:
            return Assignment(field, lambda batch: pa.nulls(batch.num_rows, field.type))
        scalar = pa.array([plain], storage_type(dtype))[0]
        is_same = _is_held(plain, scalar.as_py()) and (not is_moment or pt.is_temporal(dtype))
    except (*OF_VALUES, OverflowError, TypeError, ValueError):
        is_same = False
    if not is_same:
        given = value.as_py() if isinstance(value, pa.Scalar) else value
        raise UsageError(f"set: column {field.name!r} is {field.type}, which can't be {given!r}")
    return Assignment(field, lambda batch: to_logical(pa.repeat(scalar, batch.num_rows), dtype))


def _as_stored(value: Any, dtype: pa.DataType) -> Any:
    """Returns a value of Python, NumPy, pandas or Arrow as Python's value for the storage of a column.

    Raises `TypeError` or `ValueError` for some that the column can't take.
    """
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    elif isinstance(value, np.number | np.bool_) and not isinstance(value, np.timedelta64):
        value = value.item()
    if _is_missing(value):
        return None
    if isinstance(value, np.datetime64 | np.timedelta64):
        return _in_unit_of(value, dtype)
    if isinstance(dtype, pa.UuidType):
        return value.bytes if isinstance(value, UUID) else value
    if isinstance(dtype, pa.Bool8Type):
        return (False, True).index(value)
    if pt.is_struct(dtype):
        if not isinstance(value, Mapping):
            raise TypeError("a struct is a mapping")
        types = {part.name: part.type for part in dtype.fields}
        return {name: _as_stored(part, types.get(name, pa.null())) for name, part in value.items()}
    if pt.is_map(dtype):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(_as_stored(k, dtype.key_type), _as_stored(v, dtype.item_type)) for k, v in pairs]
    is_list = is_list_like(dtype) or pt.is_fixed_size_list(dtype)
    if is_list and not isinstance(value, str | bytes | Mapping):
        return [_as_stored(part, dtype.value_type) for part in value]
    return value


def _in_unit_of(value: Any, dtype: pa.DataType) -> Any:
    """Returns a moment or a length of time of NumPy in the unit of a column of such. Raises `ValueError` if
    that would change it."""
    if not (pt.is_timestamp(dtype) or pt.is_date(dtype) or pt.is_duration(dtype)):
        return value
    if value.dtype.kind == "m" and np.datetime_data(value.dtype)[0] in ("Y", "M", "generic"):
        raise ValueError(f"{value!r} has no length in seconds")
    unit = "D" if pt.is_date(dtype) else dtype.unit
    in_unit = value.astype(f"{value.dtype.kind}8[{unit}]")
    if in_unit.astype(value.dtype) != value:
        raise ValueError(f"{value!r} has no place in units of {unit}")
    return in_unit.item() if pt.is_date(dtype) else in_unit


def _is_missing(value: object) -> bool:
    """Says whether a value stands for a null."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    pandas = sys.modules.get("pandas")  # which made the value if it is one of its own
    return value is None or (pandas is not None and (value is pandas.NA or value is pandas.NaT))


def _is_held(given: Any, held: Any) -> bool:
    """Says whether Arrow holds what was given: it cuts fractions and zones off, and takes NumPy's large
    integers for negative ones. Floats may be rounded, those of 16 bits to a thousandth.

    Raises `TypeError` for values of which one has parts.
    """
    if isinstance(held, float):
        exact = float(given)
        is_near = math.isclose(exact, held, rel_tol=1e-3, abs_tol=1e-7)
        return is_near or (math.isnan(exact) and math.isnan(held))
    if isinstance(held, list | tuple):
        parts = list(given.items() if isinstance(given, dict) else given)
        return len(parts) == len(held) and all(map(_is_held, parts, held))
    if isinstance(held, dict):
        return given.keys() == held.keys() and all(
            _is_held(given[name], part) for name, part in held.items()
        )
    return bool(given == held)


def _fits(found: pa.DataType, column: pa.DataType) -> bool:
    """Says whether values of a type go into a column without a CAST."""
    found, column = uncoded_type(found), uncoded_type(column)
    if pt.is_null(found) or found == column:
        return True
    if pt.is_timestamp(found) and pt.is_timestamp(column):
        return (found.tz is None) == (column.tz is None)
    if isinstance(column, pa.BaseExtensionType) or isinstance(found, pa.BaseExtensionType):
        return False
    kind, wanted = kind_of(found), kind_of(column)
    if kind == "decimal" and wanted == "integer":
        return bool(found.scale <= 0)  # Differences of 64 bits without a sign are such decimals.
    if kind == "date" and pt.is_timestamp(column):
        return column.tz is None
    return kind == wanted or wanted in _BECOMES.get(kind, ())


def _without_infinities(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Casts as `cast_exactly`, but rounds to floats, and makes no finite value infinite, as Arrow would."""
    return converted(array, dtype) if pt.is_floating(dtype) else cast_exactly(array, dtype)


def _computed(batch: pa.RecordBatch, assignment: Assignment, table: TableMetadata) -> pa.Array:
    def compute(rows: pa.RecordBatch) -> pa.Array:
        values = as_type(assignment.values(rows), assignment.column.type, _without_infinities)
        if (place := null_place(values, assignment.column)) is not None:
            raise pa.ArrowInvalid(f"{place!r} has a null, which the table does not allow")
        return values

    try:
        return compute(batch)
    except _REFUSED:
        row, error = next(
            failing_rows(
                batch.num_rows,
                lambda start, stop: compute(batch.slice(start, stop - start)),
                _REFUSED,
            )
        )
    names = [table.shown_name(column.column) for column in table.rows.key_columns(table.sort)]
    keys = [to_storage(batch.column(name)) for name in names]
    raise DataError(
        f"set: column {assignment.column.name!r} of the row where {condition_of_key(table, keys, row)}: "
        f"{first_line(error)}; nothing was updated: TRY_CAST and CASE leave such values out, "
        "coalesce replaces nulls"
    )
