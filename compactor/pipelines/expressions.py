"""Binds expressions of nodes to the schemas of their inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from sqlglot import expressions as exp

from compactor.errors import ConfigError, UsageError
from compactor.predicate.expressions.bound import Rows
from compactor.predicate.expressions.sizes import in_slices
from compactor.predicate.parse import bound_value, parse_condition
from compactor.predicate.sql import SqlError, parsed, shown
from compactor.predicate.tree import columns_of, matching
from lsm_fragment import compute as pc
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.value_errors import OF_VALUES, first_line


def parsed_expression(text: str, what: str) -> exp.Expression:
    """Returns the syntax tree. Raises `ConfigError` for invalid SQL.

    what: subject of the message.
    """
    try:
        return parsed(text)
    except SqlError as error:
        raise ConfigError(f"{what}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{what}: {shown(text)} is nested too deeply") from None


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


class Expression:
    """One expression, bound to a schema."""

    def __init__(
        self, text: str, schema: pa.Schema, what: str, tree: exp.Expression | None = None
    ) -> None:
        """Raises `ConfigError` for invalid SQL, unknown functions, and type mismatches.

        what: subject of messages. tree: evaluated instead of the parsed text.
        """
        self.text = text
        try:
            self._bound = bound_value(
                parsed_expression(text, what) if tree is None else tree, schema
            )
        except SqlError as error:
            raise ConfigError(f"{what}: {error}") from None
        except (RecursionError, OverflowError, *OF_VALUES):
            raise ConfigError(
                f"{what}: {text[:100]!r} is too long, or has a number too large"
            ) from None
        self.type: pa.DataType = self._bound.type

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        """Raises `pa.ArrowException` for values outside the expression's domain."""
        return in_slices(self._bound.array, Rows(batch.num_rows, batch.column))
