"""The keys of a join: columns or expressions of both sides, in a type in which they compare by value."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyarrow import types as pt

from compactor.errors import ConfigError
from compactor.pipelines.expressions import computing
from compactor.pipelines.key_types import common_key_type, comparable
from compactor.pipelines.provenance import with_columns
from compactor.predicate.computed import Expression
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.names import names_text


class _Value(NamedTuple):
    """One side of a key."""

    text: str
    type: pa.DataType
    is_column: bool
    of: Callable[[pa.RecordBatch], pa.Array]


class SideKeys:
    """One side of a join with its keys as columns. Keys that are not columns already are appended."""

    def __init__(
        self, given: pa.Schema, values: Sequence[_Value], types: Sequence[pa.DataType]
    ) -> None:
        self._given = given
        self._computed: list[tuple[_Value, pa.DataType]] = []
        self.names: list[str] = []
        """The columns that are compared."""
        self.schema = given
        for value, dtype in zip(values, types, strict=True):
            if value.is_column and value.type == dtype:
                self.names.append(value.text)
                continue
            name = free_name(f"$key{len(self.names)}", self.schema.names)
            self.names.append(name)
            self.schema = self.schema.append(pa.field(name, dtype))
            self._computed.append((value, dtype))

    @property
    def is_computed(self) -> bool:
        return bool(self._computed)

    def added(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Appends the keys. Raises `pa.ArrowException` for values outside an expression's domain, naming the
        key."""
        columns = [batch.column(name) for name in self._given.names]
        for value, dtype in self._computed:
            with computing(f"key {value.text!r}"):
                columns.append(comparable(value.of(batch), dtype))
        return with_columns(batch, columns, self.schema)


class Ordered(NamedTuple):
    """A column of the probe side that is compared with columns of the build side by order."""

    probe: str
    build: Sequence[str]
    type: pa.DataType
    """In which they compare by value."""


class JoinKeys:
    """The keys of both sides, bound to their schemas."""

    def __init__(
        self,
        probe: pa.Schema,
        build: pa.Schema,
        on: Sequence[tuple[str, str]],
        what: str,
        ordered: Sequence[Ordered] = (),
    ) -> None:
        """on: pairs of probe and build columns or expressions. ordered: follow the keys in each side's names.

        Raises `ConfigError` naming the column.
        """
        lefts = [_value(left, probe, f"{what}: the probe side", what) for left, _ in on]
        rights = [_value(right, build, f"{what}: the build side", what) for _, right in on]
        types = [_common(*pair, what) for pair in zip(lefts, rights, strict=True)]
        points = [(part.probe, part.type) for part in ordered]
        bounds = [(name, part.type) for part in ordered for name in part.build]
        self.probe = _side(probe, lefts, types, points)
        self.build = _side(build, rights, types, bounds)
        self.shared: list[tuple[str, str]] = []
        """Pairs of columns: the result has them once."""
        self.different: dict[str, pa.DataType] = {}
        """By probe column: the common type of such a pair, if its columns differ in type."""
        self.expressions = [v.text for v in (*lefts, *rights) if not v.is_column]
        for left, right, dtype in zip(lefts, rights, types, strict=True):
            if left.is_column and right.is_column:
                self.shared.append((left.text, right.text))
                if left.type != right.type:
                    self.different[left.text] = dtype


def joined_schema(
    probe: pa.Schema, build: pa.Schema, shared: Sequence[tuple[str, str]], what: str
) -> pa.Schema:
    """Returns the probe side's columns, then the build side's without the shared ones.

    Raises `ConfigError` naming a column of both sides.
    """
    keys = {right for _, right in shared}
    added = [field for field in build if field.name not in keys]
    for field in added:
        if field.name in probe.names:
            raise ConfigError(
                f"{what}: both sides have a column {field.name!r}: rename or leave out one in a transform"
            )
    return pa.schema([*probe, *added])


def widened_keys(schema: pa.Schema, keys: JoinKeys, what: str) -> pa.Schema:
    """Returns the schema of a result in which keys of either side stand in the probe side's columns."""
    for name, dtype in keys.different.items():
        place = schema.get_field_index(name)
        if pt.is_temporal(storage_type(schema.field(place).type)):
            raise ConfigError(
                f"{what}: {name!r} has another type on the build side, whose times would be in it too: cast "
                "one in a transform"
            )
        schema = schema.set(place, pa.field(name, dtype))
    return schema


def free_name(wanted: str, taken: Container[str]) -> str:
    """Returns an unused column name."""
    while wanted in taken:
        wanted = f"${wanted}"
    return wanted


def _side(
    schema: pa.Schema,
    keys: Sequence[_Value],
    types: Sequence[pa.DataType],
    ordered: Sequence[tuple[str, pa.DataType]],
) -> SideKeys:
    columns = [_column(name, schema) for name, _ in ordered]
    return SideKeys(schema, [*keys, *columns], [*types, *(dtype for _, dtype in ordered)])


def _column(name: str, schema: pa.Schema) -> _Value:
    dtype = storage_type(schema.field(name).type)
    return _Value(name, dtype, True, lambda batch: batch.column(name))


def _value(text: str, schema: pa.Schema, side: str, what: str) -> _Value:
    if text in schema.names:
        value = _column(text, schema)
    elif text.isidentifier():
        raise ConfigError(f"{side} has no column {text!r}; it has: {names_text(schema.names)}")
    else:
        found = Expression(text, schema, f"{what}: on: {text}")
        value = _Value(text, storage_type(found.type), False, found)
    is_odd = pt.is_null(value.type) or pt.is_nested(value.type) or pt.is_float16(value.type)
    if is_odd or pt.is_interval(value.type):
        kind = "column " if value.is_column else ""
        advice = "join by a value in it"
        if pt.is_null(value.type):
            advice = "no value tells its type: name it in `fields` of the source, or cast it"
        raise ConfigError(
            f"{what}: {kind}{text!r} is {value.type}, which is equal to nothing: {advice}"
        )
    return value


def _common(left: _Value, right: _Value, what: str) -> pa.DataType:
    found = common_key_type(left.type, right.type)
    if found is None:
        raise ConfigError(
            f"{what}: {left.text!r} is {left.type} on the probe side, {right.text!r} is {right.type} on the "
            "build side: cast one in a transform"
        )
    return found
