"""Derives from the declaration of a record how it is stored, as JSON and as Arrow columns, and its checks.

A field states its form beside its type: `level: Annotated[int, Number(MAX_LEVEL)]`. From that `Stored` makes

- the JSON object, in the order of the fields, and the record from JSON;
- the Arrow columns of many records, and the records from those;
- the check that each value is one that a writer makes. The log's checksums do not prove who wrote it.

A field with a default is left out of JSON and of columns where it has that default; so a field that is added
with a default changes no byte of tables that do not use it. Unknown fields are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, Final, Generic, TypeVar, get_type_hints

import msgspec
import pyarrow as pa

from compactor.common.conversion import convertible
from compactor.common.plain_values import plain
from compactor.table.json_text import from_json_text, to_json_text
from compactor.table.numbers import MAX_INT64, check_number

_Record = TypeVar("_Record")
_INT64: Final = pa.int64()
_REQUIRED: Final = Parameter.empty


class Form:
    """The stored form of a field's values: the same value in JSON, and its JSON text in a column."""

    arrow: pa.DataType = pa.string()
    """The type of the field's column in a checkpoint."""
    parts: Sequence[str] = ()
    """The names of the parts of a value, for a field with a column for each part."""
    is_always_there: bool = False
    """Whether the field is stored although it has its default."""

    def check(self, name: str, value: Any) -> None:
        """Raises TypeError or ValueError, naming the field, for a value that no writer makes."""

    def to_json(self, value: Any) -> Any:
        return value

    def from_json(self, value: Any) -> Any:
        """Returns the value. Raises TypeError or ValueError if it cannot be parsed."""
        return value

    def to_cells(self, values: Iterable[Any]) -> list[Any]:
        """Returns what the field's column holds. None stands for the default, here and in `from_cells`."""
        return [None if v is None else to_json_text(self.to_json(v)) for v in values]

    def from_cells(self, cells: Sequence[Any]) -> list[Any]:
        return [None if cell is None else self.from_json(from_json_text(cell)) for cell in cells]


class _Plain(Form):
    """A value that JSON and a column hold as it is."""

    def to_cells(self, values: Iterable[Any]) -> list[Any]:
        return list(values)

    def from_cells(self, cells: Sequence[Any]) -> list[Any]:
        return list(cells)


@dataclass(frozen=True)
class Number(_Plain):
    """An integer within bounds."""

    most: int = MAX_INT64
    least: int = 0
    arrow: pa.DataType = _INT64
    is_always_there: bool = False

    def check(self, name: str, value: Any) -> None:
        if type(value) is not int or not self.least <= value <= self.most:
            check_number(name, value, self.most, least=self.least)


class RelatedNumber(_Plain):
    """An integer whose bounds other fields give: the record's own function checks it."""

    arrow = _INT64


class Hash(_Plain):
    """Unsigned 64 bits, 16 hexadecimal digits in JSON."""

    arrow = pa.uint64()

    def check(self, name: str, value: Any) -> None:
        check_number(name, value, 2**64 - 1)

    def to_json(self, value: int) -> str:
        return f"{value:016x}"

    def from_json(self, value: str) -> int:
        return int(value, 16)


class Text(_Plain):
    def check(self, name: str, value: Any) -> None:
        if not isinstance(value, str):
            raise ValueError(f"{name} is not a text")


@dataclass(frozen=True)
class ObjectName(_Plain):
    """The key of an object of the table."""

    is_valid: Callable[[object], bool]
    what: str

    def check(self, name: str, value: Any) -> None:  # noqa: ARG002 - the message names the object
        if not self.is_valid(value):
            raise ValueError(f"{value!r} is not the name of {self.what}")


@dataclass(frozen=True)
class Numbers(Form):
    """A tuple of integers: an array in JSON, and a column for each of its parts."""

    parts: Sequence[str]
    arrow: pa.DataType = _INT64

    def check(self, name: str, value: Any) -> None:
        for place, number in enumerate(value):
            check_number(f"{name}[{place}]", number)

    def to_json(self, value: Sequence[int]) -> list[int]:
        return list(value)

    def from_json(self, value: Any) -> tuple[int, ...]:
        return tuple(value[place] for place in range(len(self.parts)))


@dataclass(frozen=True)
class Converted(Form):
    """A value of a type that msgspec converts and checks by its annotations."""

    type: Any

    def __post_init__(self) -> None:
        convertible(self.type)

    def to_json(self, value: Any) -> Any:
        return plain(value)

    def from_json(self, value: Any) -> Any:
        return msgspec.convert(value, self.type)


@dataclass(frozen=True)
class Keyed(Form):
    """A mapping of records by one of their fields: an array of the records in JSON."""

    type: Any
    key: str

    def __post_init__(self) -> None:
        convertible(list[self.type])  # type: ignore[name-defined]

    def to_json(self, value: Mapping[str, Any]) -> Any:
        return plain(list(value.values()))

    def from_json(self, value: Any) -> dict[str, Any]:
        records: list[Any] = msgspec.convert(value, list[self.type])  # type: ignore[name-defined]
        return {getattr(record, self.key): record for record in records}


@dataclass(frozen=True)
class Parsed(Form):
    """A value whose class has a JSON form of its own."""

    parse: Callable[[Any], Any]

    def to_json(self, value: Any) -> Any:
        return value.to_json()

    def from_json(self, value: Any) -> Any:
        return self.parse(value)


@dataclass(frozen=True)
class Several(Form):
    """A tuple of values of one form: an array in JSON."""

    form: Form

    def check(self, name: str, value: Any) -> None:
        for item in value:
            self.form.check(name, item)

    def to_json(self, value: Any) -> Any:
        return [self.form.to_json(item) for item in value]

    def from_json(self, value: Any) -> Any:
        return tuple(self.form.from_json(item) for item in value)


class Field:
    """One field of a record: its name, its form, and its default if it may be left out."""

    def __init__(self, name: str, form: Form, default: Any, *, may_miss: bool) -> None:
        self.name = name
        self.form = form
        self.default = default
        self.may_miss = may_miss
        self.columns = [f"{name}_{part}" for part in form.parts] or [name]

    def cells(self, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Returns the values of the field's columns."""
        if self.form.parts:
            return list(zip(*values, strict=True)) or [[] for _ in self.form.parts]
        if self.may_miss:
            values = [None if value == self.default else value for value in values]
        return [self.form.to_cells(values)]

    def values(self, columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """Returns the field's values, given its columns."""
        if self.form.parts:
            return list(zip(*columns, strict=True))
        values = self.form.from_cells(columns[0])
        if self.may_miss and self.default is not None:
            return [self.default if value is None else value for value in values]
        return values


class Stored(Generic[_Record]):
    """The stored forms of a class of records. Fields without a form are not stored."""

    def __init__(
        self, record: type[_Record], *, leaves_out: bool = True, rare: Collection[str] = ()
    ) -> None:
        """leaves_out: whether fields that have their default are left out. rare: those that are anyway."""
        self._record = record
        hints = get_type_hints(record, include_extras=True)
        self.fields: list[Field] = []
        for name, parameter in signature(record).parameters.items():
            for form in getattr(hints[name], "__metadata__", ()):
                if isinstance(form, Form):
                    default = parameter.default
                    may_miss = name in rare or leaves_out
                    may_miss = may_miss and default is not _REQUIRED and not form.is_always_there
                    self.fields.append(Field(name, form, default, may_miss=may_miss))
        self._checked = [
            (field.name, field.form.check, field.default)
            for field in self.fields
            if type(field.form).check is not Form.check
        ]

    @property
    def schema(self) -> pa.Schema:
        """The columns of a checkpoint."""
        return pa.schema([(c, f.form.arrow) for f in self.fields for c in f.columns])

    @property
    def columns_that_may_miss(self) -> list[str]:
        """The columns that are left out where no record has a value."""
        return [column for field in self.fields if field.may_miss for column in field.columns]

    @property
    def columns_without_nulls(self) -> list[str]:
        return [c for f in self.fields if f.default is _REQUIRED for c in f.columns]

    def check(self, record: _Record, within: str = "") -> None:
        """Raises TypeError or ValueError, naming the field, for a value that no writer makes.

        within: what the name of the field is put after.
        """
        for name, check, default in self._checked:
            value = getattr(record, name)
            if value is not default:
                check(within + name if within else name, value)

    def to_json(self, record: _Record) -> dict[str, Any]:
        document: dict[str, Any] = {}
        for field in self.fields:
            value = getattr(record, field.name)
            if value is None:
                if not field.may_miss:
                    document[field.name] = None
            elif not field.may_miss or value != field.default:
                document[field.name] = field.form.to_json(value)
        return document

    def from_json(self, document: Any, **others: Any) -> _Record:
        """Returns the record, unchecked. Raises KeyError, TypeError or ValueError if a value can't be parsed.

        null stands for a default of None. others: the fields that are not stored.
        """
        values = others
        for field in self.fields:
            if field.may_miss:
                value = document.get(field.name)
                if value is None:
                    continue
            else:
                value = document[field.name]
                if value is None and field.default is None:
                    continue
            values[field.name] = field.form.from_json(value)
        return self._record(**values)

    def to_list(self, record: _Record) -> list[Any]:
        """Returns the values of the fields, for records that JSON holds as arrays."""
        return list(self.to_json(record).values())

    def from_list(self, values: Sequence[Any]) -> _Record:
        return self.from_json(dict(zip((f.name for f in self.fields), values, strict=True)))

    def to_columns(self, records: Sequence[_Record]) -> pa.Table:
        columns: dict[str, Any] = {}
        for field in self.fields:
            cells = field.cells([getattr(record, field.name) for record in records])
            columns.update(zip(field.columns, cells, strict=True))
        return pa.table(columns, schema=self.schema)

    def from_columns(self, table: pa.Table) -> list[_Record]:
        """Returns the records, unchecked. Raises as `from_json` does."""
        names = [field.name for field in self.fields]
        values = [
            field.values([table.column(column).to_pylist() for column in field.columns])
            for field in self.fields
        ]
        make = self._record
        return [make(**dict(zip(names, row, strict=True))) for row in zip(*values, strict=True)]


@dataclass(frozen=True)
class Listed(Form):
    """A record that JSON holds as an array of its fields' values."""

    stored: Stored[Any]

    def check(self, name: str, value: Any) -> None:
        self.stored.check(value, f"{name} ")

    def to_json(self, value: Any) -> list[Any]:
        return self.stored.to_list(value)

    def from_json(self, value: Any) -> Any:
        return self.stored.from_list(value)
