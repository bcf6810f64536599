"""Binds conditions of nodes to the schemas of their inputs, and names what was computed in errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from compactor.errors import ConfigError, UsageError
from compactor.predicate.parse import parse_condition
from compactor.predicate.tree import columns_of, matching
from lsm_fragment import compute as pc
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.value_errors import OF_VALUES, first_line


@contextmanager
def computing(what: str) -> Iterator[None]:
    """Names what was computed in errors about values."""
    try:
        yield
    except OF_VALUES as error:
        raise pa.ArrowInvalid(f"{what}: {first_line(error)}") from None


class Filter:
    """Finds the rows for which a condition holds."""

    def __init__(self, text: str, schema: pa.Schema, what: str, part: str) -> None:
        """part: names the condition within its node. Raises `ConfigError`."""
        self._part = part
        try:
            self._where = parse_condition(text, schema, f"{what}: {part}")
        except UsageError as error:
            raise ConfigError(str(error)) from None
        self.uses = columns_of(self._where)
        """The columns that it reads."""

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        """Returns bool without nulls. Raises `pa.ArrowInvalid` for values outside the condition's domain."""
        arrays = {name: to_storage(batch.column(name)) for name in self.uses}
        with computing(self._part):
            return pc.fill_null(matching(self._where, arrays, batch.num_rows), False)
