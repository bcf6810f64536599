"""Refuses column names that some readers of a table could not represent. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyarrow import types as pt

from compactor.errors import InputError
from lsm_fragment.arrays.json_texts import SURROGATE


def flaw_of(name: str) -> str | None:
    """Returns the flaw of a column's or field's name, or None. Empty names are valid, as in JSON."""
    if "\0" in name:
        return "has a NUL character, where Arrow's C interface ends a name"
    if SURROGATE.search(name):
        return "is not Unicode text"
    return None


def check_names(schema: pa.Schema, path: str) -> None:
    """Checks the names of columns, nested fields and time zones. Raises `InputError`."""
    fields = list(schema)
    while fields:
        try:
            check_texts([field.name for field in fields], path)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}: column name {error.object!r} is not UTF-8: rename it"
            ) from None
        for field in fields:
            _check_zone(field, path)
        fields = [inner for field in fields for inner in inner_fields(field.type)]


def _check_zone(field: pa.Field, path: str) -> None:
    try:
        _ = field.type.tz if pt.is_timestamp(field.type) else None
    except UnicodeDecodeError:
        raise InputError(
            f"{path}: column {field.name!r}: its time zone is not UTF-8: write the file again with a zone "
            "such as 'UTC'"
        ) from None


def inner_fields(dtype: pa.DataType) -> list[pa.Field]:
    """Returns the fields directly within a type."""
    if isinstance(dtype, pa.BaseExtensionType):
        return inner_fields(dtype.storage_type)
    if pt.is_dictionary(dtype):
        return inner_fields(dtype.value_type)
    return [dtype.field(place) for place in range(dtype.num_fields)]


def check_texts(names: Iterable[str], path: str) -> None:
    """Raises `InputError` for the first name with a flaw."""
    for name in names:
        flaw = flaw_of(name)
        if flaw is not None:
            raise InputError(f"{path}: column name {name!r} {flaw}: rename it")
