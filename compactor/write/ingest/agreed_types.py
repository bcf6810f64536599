"""Finds types that fit all text files of one call, before they create a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa

from compactor.errors import CompactorError, InputError
from compactor.files.common_types import common_type
from compactor.files.read import open_table_file
from compactor.files.text_options import TextOptions


class Agreed(NamedTuple):
    """The columns whose types differ among files."""

    types: pa.Schema = pa.schema([])
    """With the type that is common to them."""
    widest: Mapping[str, str] = MappingProxyType({})
    """By column, the first file that has this type by itself."""

    def explained(self, error: InputError) -> InputError:
        """Names the file that a column has its type from, if the error is about a value of another file."""
        for name, path in self.widest.items():
            if f"column {name!r}" in str(error) and not str(error).startswith(f"{path},"):
                dtype = self.types.field(name).type
                return InputError(*error.message.parts, f"; {name!r} is {dtype} because of {path}")
        return error


def agreed_types(
    paths: Sequence[str], options: TextOptions, *, leaves_out_bad_rows: bool = False
) -> Agreed:
    """Finds types for the columns of all files.

    Passes over files with errors, which are reported when they are added.
    """
    found: dict[str, dict[str, pa.DataType]] = {}
    for path in paths:
        for field in types_of(path, options, leaves_out_bad_rows=leaves_out_bad_rows) or ():
            found.setdefault(field.name, {})[path] = field.type
    types, widest = [], {}
    for name, by_path in found.items():
        common = common_type(list(by_path.values()))
        if len(set(by_path.values())) == 1 or common is None:
            continue
        types.append((name, common))
        own = next((path for path, dtype in by_path.items() if dtype == common), None)
        if own is not None:
            widest[name] = own
    return Agreed(pa.schema(types), widest)


def types_of(
    path: str, options: TextOptions, *, leaves_out_bad_rows: bool = False
) -> pa.Schema | None:
    """Returns the types of a file by itself; None if it has errors."""
    try:
        with open_table_file(
            path,
            options=options,
            may_be_empty=True,
            held_bytes=0,
            leaves_out_bad_rows=leaves_out_bad_rows,
        ) as file:
            return pa.schema([]) if file.lacks_columns else file.schema
    except CompactorError:
        return None


def with_agreed(known: pa.Schema | None, agreed: pa.Schema) -> pa.Schema | None:
    """Returns the types to read a file by: those of a table, and agreed ones of other columns."""
    if known is None:
        return agreed if len(agreed) else None
    names = set(known.names)
    return pa.schema([*known, *(field for field in agreed if field.name not in names)])
