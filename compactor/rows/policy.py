"""Row policies, which define how rows of equal key are merged, and times to live. Pure values.

A row's key is its sort columns without the sequence column, which only orders the rows of one key. Under
every policy but `append` a fragment has at most one row of a key (two if a tombstone must stay before it),
and readers see at most one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, Self

import msgspec
import pyarrow as pa
from msgspec.structs import replace
from pyarrow import types as pt
from pydantic import NonNegativeInt, Strict

from compactor.common.conversion import convertible
from compactor.common.message import Setting
from compactor.common.setting_keys import (
    AGGREGATE,
    DELETE_MARKER,
    KEEP_TOMBSTONES,
    SEQUENCE,
    SORT_BY,
    TTL_COLUMN,
)
from compactor.errors import UsageError
from lsm_fragment.arrays.types import storage_type, uncoded_type
from lsm_fragment.keys.sort_schema import Nulls, Order, SortColumn, SortSchema, ordering
from lsm_fragment.names import names_text, quoted


class RowKind(StrEnum):
    """How rows of equal key are merged."""

    APPEND = "append"
    """All rows stay."""
    LAST = "last"
    """The newest row of a key stays."""
    FIRST = "first"
    """The oldest row of a key stays."""
    PARTIAL_UPDATE = "partial-update"
    """One row of a key stays, with the newest non-null value of each column."""
    AGGREGATE = "aggregate"
    """One row of a key stays, with each column aggregated by its own function."""


class RowFunction(StrEnum):
    """A function that aggregates a column. Ignores nulls; only nulls give null."""

    LAST = "last"
    FIRST = "first"
    SUM = "sum"
    COUNT = "count"
    """Number of ingested values: a sum of ones."""
    MIN = "min"
    MAX = "max"
    BOOL_OR = "bool_or"
    BOOL_AND = "bool_and"
    LIST = "list"
    """All elements, oldest first."""
    SET = "set"
    """Each element once, in the order of first appearance."""


@dataclass(frozen=True, slots=True)
class RowPolicy:
    """The row policy of a table."""

    kind: Annotated[RowKind, Strict(False)] = RowKind.APPEND
    sequence: str | None = None
    """Column whose greater values are newer, for `last` and `first`; null is oldest. Ties, and rows without
    such a column, are ordered by ingestion."""
    delete_marker: str | None = None
    """Boolean column that marks tombstones, which remove the older rows of their key."""
    keeps_tombstones: bool | None = None
    """Whether tombstones are never dropped, because older rows of their key may still arrive. None: only with
    a sequence column, since without one no older row can arrive."""
    aggregates: tuple[tuple[str, Annotated[RowFunction, Strict(False)]], ...] = ()
    """Functions by column, for `aggregate`; other columns use `last`."""

    @property
    def merges(self) -> bool:
        """Whether rows of equal key are merged."""
        return self.kind is not RowKind.APPEND

    @property
    def may_drop_tombstones(self) -> bool:
        if self.keeps_tombstones is None:
            return self.sequence is None
        return not self.keeps_tombstones

    @property
    def folds(self) -> bool:
        """Whether a merged row may combine values of several rows."""
        return self.kind in (RowKind.PARTIAL_UPDATE, RowKind.AGGREGATE)

    def function(self, column: str) -> RowFunction:
        return dict(self.aggregates).get(column, RowFunction.LAST)

    def key_columns(self, sort: SortSchema) -> SortSchema:
        """Returns the key columns of a table's sort schema."""
        return tuple(c for c in ordering(sort) if c.column != self.sequence)

    def renamed(self, rename: Callable[[str], str]) -> RowPolicy:
        """Returns the policy with its columns renamed."""
        return dataclasses.replace(
            self,
            sequence=None if self.sequence is None else rename(self.sequence),
            delete_marker=None if self.delete_marker is None else rename(self.delete_marker),
            aggregates=tuple((rename(column), function) for column, function in self.aggregates),
        )

    def __str__(self) -> str:
        parts = [str(self.kind)]
        if self.sequence is not None:
            parts.append(f"by {quoted(self.sequence)}")
        if self.aggregates:
            parts.append(
                "of " + ", ".join(f"{quoted(column)}:{name}" for column, name in self.aggregates)
            )
        if self.delete_marker is not None:
            kept = "dropped when possible" if self.may_drop_tombstones else "kept"
            parts.append(f"with tombstones where {quoted(self.delete_marker)} ({kept})")
        return " ".join(parts)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": str(self.kind),
            "sequence": self.sequence,
            "delete_marker": self.delete_marker,
            "keeps_tombstones": self.keeps_tombstones,
            "aggregates": {column: str(function) for column, function in self.aggregates},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            RowKind(value["kind"]),
            msgspec.convert(value["sequence"], str | None),
            msgspec.convert(value["delete_marker"], str | None),
            msgspec.convert(value["keeps_tombstones"], bool | None),
            tuple((column, RowFunction(name)) for column, name in value["aggregates"].items()),
        )


APPEND: Final = RowPolicy()


@convertible
@dataclass(frozen=True, slots=True)
class Ttl:
    """A time to live: compactions drop older rows; rows without a time never expire."""

    column: str
    seconds: NonNegativeInt

    def __str__(self) -> str:
        return f"{self.seconds:,} s by {quoted(self.column)}"


def sort_with_policy(sort: SortSchema, policy: RowPolicy, ttl: Ttl | None) -> SortSchema:
    """Extends the key `sort` to the sort schema of the table: the key, the sequence column, then the non-key
    columns that decisions on rows need."""
    known = {column.column for column in sort}
    if policy.sequence is not None and policy.sequence not in known:
        sort = (*sort, SortColumn(policy.sequence, Order.ASC, Nulls.FIRST))
    unordered = [policy.delete_marker, ttl.column if ttl else None]
    for name in unordered:
        if name is not None and name not in {column.column for column in sort}:
            sort = (*sort, SortColumn(name, Order.NONE))
    return sort


def with_result_types(schema: pa.Schema, policy: RowPolicy) -> pa.Schema:
    """Widens the types of sums and counts."""
    fields = []
    for field in schema:
        # Columns without a function, such as keys, keep their type.
        function = dict(policy.aggregates).get(field.name)
        if function is RowFunction.COUNT:
            fields.append(field.with_type(pa.int64()))
        elif function is RowFunction.SUM:
            fields.append(field.with_type(_sum_type(field.type)))
        else:
            fields.append(field)
    return pa.schema(fields, metadata=schema.metadata)


def _sum_type(dtype: pa.DataType) -> pa.DataType:
    if pt.is_integer(dtype):
        return pa.int64()
    if pt.is_floating(dtype):
        return pa.float64()
    if pt.is_decimal(dtype):
        return (
            pa.decimal256(76, dtype.scale)
            if dtype.bit_width > 128
            else pa.decimal128(38, dtype.scale)
        )
    return dtype


def check_policy(policy: RowPolicy, ttl: Ttl | None, schema: pa.Schema, sort: SortSchema) -> None:
    """Raises `UsageError` with the column or option that does not fit.

    sort: the result of `sort_with_policy`.
    """
    if policy.folds and policy.sequence is not None:
        raise UsageError(
            SEQUENCE,
            f": rows of a table with row policy {policy.kind} are merged in the order of their ingestion; "
            "leave it out, or choose row policy last",
        )
    if (
        policy.kind is RowKind.FIRST
        and policy.sequence is not None
        and policy.delete_marker is not None
    ):
        raise UsageError(
            DELETE_MARKER,
            ": with row policy first and a sequence, a late tombstone would uncover rows that were already "
            "dropped; leave out the sequence, or choose row policy last",
        )
    if not policy.merges and (policy.sequence or policy.delete_marker):
        raise UsageError(
            SEQUENCE if policy.sequence else DELETE_MARKER,
            ": choose a row policy that merges rows of a key, such as last",
        )
    if policy.keeps_tombstones is not None and policy.delete_marker is None:
        raise UsageError(KEEP_TOMBSTONES, ": name the ", DELETE_MARKER, " too")
    if policy.sequence is not None:
        _column_type(policy.sequence, SEQUENCE, schema)
    if policy.aggregates and policy.kind is not RowKind.AGGREGATE:
        raise UsageError(AGGREGATE, ": goes with row policy aggregate only")
    _check_sequence(policy, sort)
    if policy.delete_marker is not None:
        dtype = _column_type(policy.delete_marker, DELETE_MARKER, schema)
        if not pt.is_boolean(dtype):
            raise UsageError(
                DELETE_MARKER, f": column {policy.delete_marker!r} is {dtype}; it has to be boolean"
            )
        if any(c.column == policy.delete_marker for c in ordering(sort)):
            raise UsageError(
                DELETE_MARKER,
                f": column {policy.delete_marker!r} is part of the sort schema; choose "
                "another column, or leave it out of ",
                SORT_BY,
            )
    _check_aggregates(policy, schema, sort)
    if ttl is not None:
        dtype = _column_type(ttl.column, TTL_COLUMN, schema)
        if not (pt.is_timestamp(dtype) or pt.is_date(dtype)):
            raise UsageError(
                TTL_COLUMN,
                f": column {ttl.column!r} is {dtype}; it has to be a timestamp or a date",
            )
        if policy.folds and ttl.column not in {c.column for c in policy.key_columns(sort)}:
            raise UsageError(
                TTL_COLUMN,
                f": with row policy {policy.kind} it has to be one of the columns of ",
                SORT_BY,
            )


def _check_sequence(policy: RowPolicy, sort: SortSchema) -> None:
    ordered = ordering(sort)
    for place, column in enumerate(ordered):
        if column.column != policy.sequence:
            continue
        wanted = replace(column, order=Order.ASC, nulls=Nulls.FIRST)
        if place != len(ordered) - 1 or column != wanted:
            raise UsageError(
                SEQUENCE,
                f": leave {policy.sequence!r} out of ",
                SORT_BY,
                "; it is added at the end, ascending",
            )
        if place == 0:
            raise UsageError(
                SEQUENCE, ": ", SORT_BY, " has to name at least one other column, the key"
            )


def _check_aggregates(policy: RowPolicy, schema: pa.Schema, sort: SortSchema) -> None:
    in_key = {column.column for column in sort}
    for name, function in policy.aggregates:
        dtype = _column_type(name, AGGREGATE, schema)
        if name in in_key:
            raise UsageError(
                AGGREGATE, f": column {name!r} is part of the key or the delete marker"
            )
        number = pt.is_integer(dtype) or pt.is_floating(dtype) or pt.is_decimal(dtype)
        nested = pt.is_nested(storage_type(dtype)) or pt.is_interval(dtype) or pt.is_null(dtype)
        is_list = pt.is_list(dtype) or pt.is_large_list(dtype)
        match function:
            case RowFunction.SUM:
                fits, wanted = number and not pt.is_float16(dtype), "a number"
            case RowFunction.MIN | RowFunction.MAX:
                fits, wanted = not nested, "of a type with an order"
            case RowFunction.BOOL_OR | RowFunction.BOOL_AND:
                fits, wanted = pt.is_boolean(dtype), "boolean"
            case RowFunction.LIST:
                fits, wanted = is_list, "a list"
            case RowFunction.SET:
                fits, wanted = (
                    is_list and not pt.is_nested(dtype.value_type),
                    "a list of plain values",
                )
            case _:
                continue
        if not fits:
            raise UsageError(
                AGGREGATE, f": column {name!r} is {dtype}; for {function} it has to be {wanted}"
            )


def _column_type(name: str, setting: Setting, schema: pa.Schema) -> pa.DataType:
    if name not in schema.names:
        raise UsageError(setting, f": no column {name!r}; columns are: {names_text(schema.names)}")
    return uncoded_type(schema.field(name).type)
