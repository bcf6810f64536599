"""Finds types that fit all text files of one call, before they create a table."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

from compactor.errors import CompactorError
from compactor.files.common_types import common_type
from compactor.files.read import open_table_file
from compactor.files.text_options import TextOptions


def agreed_types(paths: Sequence[str], options: TextOptions) -> pa.Schema:
    """Returns the columns whose types differ among files, with the type that is common to them.

    Passes over files with errors, which are reported when they are added.
    """
    found: dict[str, list[pa.DataType]] = {}
    for path in paths:
        with (
            suppress(CompactorError),
            open_table_file(path, options=options, may_be_empty=True, held_bytes=0) as file,
        ):
            for field in file.schema if not file.lacks_columns else ():
                found.setdefault(field.name, []).append(field.type)
    differ = {name: types for name, types in found.items() if len(set(types)) > 1}
    agreed = ((name, common_type(types)) for name, types in differ.items())
    return pa.schema([(name, dtype) for name, dtype in agreed if dtype is not None])


def with_agreed(known: pa.Schema | None, agreed: pa.Schema) -> pa.Schema | None:
    """Returns the types to read a file by: those of a table, and agreed ones of other columns."""
    if known is None:
        return agreed if len(agreed) else None
    return pa.schema([*known, *(field for field in agreed if field.name not in known.names)])
