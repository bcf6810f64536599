"""The request of a scan: columns, conditions, and the rule for rows of one key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from msgspec import Struct

from compactor.errors import UsageError
from compactor.predicate.tree import And, Compare, IsIn, Op, Predicate, columns_of, conjuncts
from compactor.read.read_reports import ScanReport
from compactor.rows.bounded_keys import KEY_OF, keys_of
from compactor.rows.flags import RowRule
from compactor.table.metadata import TableMetadata
from lsm_fragment.names import names_text


class Wanted(Struct, frozen=True, kw_only=True):
    """The columns and rows that a scan should return."""

    schema: pa.Schema
    """The columns, under their stored names."""
    where: Predicate | None
    """Condition on stored rows; may rule out row groups before they are read."""
    where_merged: Predicate | None
    """Condition on merged rows; rules out nothing, since an older row may fail it while the merged row
    passes."""
    rule: RowRule | None
    report: ScanReport
    limit: int | None = None
    """Number of rows after which the reader stops; None if it wants all."""

    @property
    def limit_before_merging(self) -> int | None:
        """The limit, unless a condition on merged rows leaves open how many rows it takes."""
        return self.limit if self.where_merged is None else None

    @property
    def columns(self) -> list[str]:
        """Columns to read: those of the result and of the condition on merged rows."""
        asked = [] if self.where_merged is None else columns_of(self.where_merged)
        return list(dict.fromkeys([*self.schema.names, *asked]))


def wanted_rows(
    table: TableMetadata,
    schema: pa.Schema,
    where: Predicate | None,
    report: ScanReport,
    limit: int | None = None,
) -> Wanted:
    """Builds the request of a scan. schema: with stored names. where: on stored columns. limit: number of
    rows after which the reader stops."""
    rule = rule_of_readers(table)
    if rule is None or where is None:
        return Wanted(
            schema=schema, where=where, where_merged=None, rule=rule, report=report, limit=limit
        )
    key = {column.column for column in rule.key}
    parts = [part for whole in conjuncts(where) for part in (whole, *_on_key(table, whole))]
    of_key = [part for part in parts if key.issuperset(columns_of(part))]
    return Wanted(
        schema=schema,
        where=And(tuple(of_key)) if of_key else None,
        where_merged=where,
        rule=rule,
        report=report,
        limit=limit,
    )


def _on_key(table: TableMetadata, where: Predicate) -> Iterator[Predicate]:
    """Yields the condition on the keys of values that one on the values themselves implies, if any."""
    source, key = dict(table.remembered).get(KEY_OF), table.sort[0].column
    match where:
        case Compare(column, Op.EQ, value) if column == source:
            keys = keys_of(pa.array([value], value.type))
            yield Compare(key, Op.EQ, keys.cast(value.type)[0])
        case IsIn(column, values) if column == source:
            yield IsIn(key, keys_of(values).cast(values.type))


def rule_of_readers(table: TableMetadata) -> RowRule | None:
    """Returns the rule that merges rows of one key for readers; None if readers see all rows."""
    if not table.rows.merges:
        return None
    return RowRule(table.rows, None, table.schema, table.sort, is_bottom=True, shows=True)


def scan_schema(table: TableMetadata, columns: Sequence[str] | None) -> pa.Schema:
    """Returns the schema of a scan with shown names.

    Raises `UsageError` for a column that is unknown or named twice.
    """
    schema = table.shown_schema
    if columns is None:
        return schema
    there, seen = frozenset(schema.names), set[str]()
    for name in columns:
        if name not in there:
            raise UsageError(f"no column {name!r}; columns are: {names_text(schema.names)}")
        if name in seen:
            raise UsageError(f"column {name!r} is named twice; name each once")
        seen.add(name)
    return pa.schema([schema.field(name) for name in columns])


def stored_schema(table: TableMetadata, shown: pa.Schema) -> pa.Schema:
    """Replaces shown names by stored names in a schema."""
    if not table.names:
        return shown
    stored = table.stored_names
    return pa.schema([field.with_name(stored.get(field.name)) for field in shown])
