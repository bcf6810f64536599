"""Parses expressions, binds them to a schema, and computes them for batches of rows."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import expressions as exp

from compactor.errors import ConfigError
from compactor.predicate.expressions.bound import Rows
from compactor.predicate.expressions.sizes import in_slices
from compactor.predicate.parse import bound_value
from compactor.predicate.sql import SqlError, parsed, shown
from lsm_fragment.value_errors import OF_VALUES


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
                f"{what}: {shown(text)} is too long, or has a number too large"
            ) from None
        self.type: pa.DataType = self._bound.type

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        """Raises `pa.ArrowException` for values outside the expression's domain."""
        return in_slices(self._bound.array, Rows(batch.num_rows, batch.column))
