"""Conditions on rows: parsed from SQL, evaluated on arrays, and compared with statistics.

A **condition** is an SQL expression; bound to a schema (`parse`) it is a **predicate**, a tree of plain
values (`tree`), which `tree.matching` evaluates with SQL's three-valued logic.

computed            parses expressions and computes them for batches
expressions         binds and computes values of any type; holding names the row that cannot be computed
instant             writes the time of a run into SQL
parse, sql          bind a condition to columns; numbers, times convert its values exactly to their units
prune               decides by bounds and summaries whether any row may match; False guarantees that none does
like                parses patterns; template_answers evaluates conditions on templates instead of strings
skipping            builds and queries **skip indexes**: a **summary** of each row group's values in a column
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from compactor.predicate.tree import Predicate


def parse_where(text: str, schema: pa.Schema) -> Predicate:
    """Parses a condition; defers the slow import of `compactor.predicate.parse` to the first call."""
    from compactor.predicate import parse

    return parse.parse_where(text, schema)
