"""Promotes attributes to columns: a map or struct column of a file becomes one column per key.

`attributes` {"a": 1, "b": 2} becomes `attributes.a` and `attributes.b`; rows without a key get null. A file
with maps is read twice, the first time for its keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from compactor.common.setting_keys import PROMOTE
from compactor.errors import InputError, UsageError
from compactor.files.source import BatchesOf, FileBatches
from lsm_fragment import compute as pc
from lsm_fragment.arrays.moves import take
from lsm_fragment.arrays.types import is_string

_BATCH_BYTES: Final = 64 << 20
_VALUE_BYTES: Final = 8
"""Approximate size of a value, present or missing."""


class PromotedBatches(BatchesOf):
    """A file with some of its columns promoted, iterable once like any other."""

    def __init__(self, open_file: Callable[[], FileBatches], columns: Sequence[str]) -> None:
        """Raises `UsageError` for a column that is neither a map with text keys nor a struct."""
        super().__init__(open_file())
        present = set(self._file.schema.names)
        self.absent = tuple(name for name in columns if name not in present)
        """Columns to promote that the file lacks."""
        try:
            self._columns = [name for name in columns if name in present]
            keys: dict[str, list[str]] = {}
            maps = [n for n in self._columns if pt.is_map(self._type_of(n))]
            if maps:
                with open_file() as once:
                    keys = _keys_of(once, maps)
            # The sort order stays, since sort columns are never maps or structs.
            self.schema = self._promoted_schema(keys)
        except BaseException:
            self._file.close()
            raise

    def _type_of(self, name: str) -> pa.DataType:
        dtype = self._file.schema.field(name).type
        if pt.is_map(dtype) and not is_string(dtype.key_type):
            raise UsageError(
                PROMOTE, f": column {name!r} of {self.path} has keys of {dtype.key_type}, not text"
            )
        if not (pt.is_map(dtype) or pt.is_struct(dtype)):
            raise UsageError(
                PROMOTE,
                f": column {name!r} of {self.path} is {dtype}; it has to be a map or a struct",
            )
        return dtype

    def _promoted_schema(self, keys: dict[str, list[str]]) -> pa.Schema:
        fields: list[pa.Field] = []
        for field in self._file.schema:
            if field.name not in self._columns:
                fields.append(field)
            elif pt.is_map(field.type):
                types = dict.fromkeys(keys[field.name], field.type.item_type)
                fields += [pa.field(f"{field.name}.{key}", dtype) for key, dtype in types.items()]
            else:
                fields += [
                    pa.field(f"{field.name}.{f.name}", f.type) for f in self._type_of(field.name)
                ]
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"{self.path}: a key makes a second column {twice!r}: rename one")
        return pa.schema(fields)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        rows = max(1, _BATCH_BYTES // (_VALUE_BYTES * max(1, len(self.schema))))
        for batch in (
            whole.slice(start, rows)
            for whole in self._file
            for start in range(0, whole.num_rows, rows)
        ):
            found: dict[str, pa.Array] = {}
            for name in batch.schema.names:
                column = batch.column(name)
                if name not in self._columns:
                    found[name] = column
                elif pt.is_map(column.type):
                    found.update(_entries(name, column))
                else:
                    names = [f"{name}.{field.name}" for field in column.type.fields]
                    found.update(zip(names, column.flatten(), strict=True))
            yield pa.RecordBatch.from_arrays(
                [
                    found[f.name] if f.name in found else pa.nulls(batch.num_rows, f.type)
                    for f in self.schema
                ],
                schema=self.schema,
            )


def _keys_of(file: FileBatches, columns: Sequence[str]) -> dict[str, list[str]]:
    """Returns all keys of map columns, sorted."""
    keys: dict[str, set[str]] = {name: set() for name in columns}
    for batch in file:
        for name, known in keys.items():
            known.update(pc.unique(_live(batch.column(name)).keys).to_pylist())
    return {name: sorted(known) for name, known in keys.items()}


def _live(column: pa.MapArray) -> pa.MapArray:
    """Drops entries that belong to no row."""
    return take(column, np.arange(len(column)))


def _entries(name: str, column: pa.MapArray) -> Iterator[tuple[str, pa.Array]]:
    """Yields one column per key; if a row has a key twice, the last entry wins."""
    column = _live(column)
    counts = np.diff(column.offsets.to_numpy())
    row = np.repeat(np.arange(len(column)), counts)
    codes = column.keys.dictionary_encode()
    of_code = codes.indices.to_numpy()
    order = np.argsort(of_code, kind="stable")
    ends = np.searchsorted(of_code[order], np.arange(len(codes.dictionary) + 1))
    items = column.items
    for code, key in enumerate(codes.dictionary.to_pylist()):
        places = order[ends[code] : ends[code + 1]]
        chosen = np.full(len(column), -1)
        chosen[row[places]] = places
        yield f"{name}.{key}", take(items, chosen)
