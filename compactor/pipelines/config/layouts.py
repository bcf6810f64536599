"""Settings of files whose ending does not tell their rows: lines, columns of fixed width, XML."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from compactor.files.layouts import Align, FixedColumn, FixedLayout, Layout, LineLayout, XmlLayout
from compactor.files.line_patterns import check_regex, line_pattern
from compactor.pipelines.config.model import Model
from compactor.predicate.expressions.types import sql_type
from compactor.settings.mistakes import SettingError

_MAX_WIDTH: Final = 1 << 20


class Multiline(Model):
    """Joins lines to records."""

    starts_with: str
    """Regular expression that the first line of a record matches at its beginning."""

    @field_validator("starts_with")
    @classmethod
    def _is_understood(cls, regex: str) -> str:
        check_regex(rf"\A(?:{regex})")
        return regex


class Lines(Model):
    """Divides lines of plain text into columns."""

    pattern: str
    """Regular expression with named groups, or grok."""
    multiline: Multiline | None = None

    @field_validator("pattern")
    @classmethod
    def _is_understood(cls, pattern: str) -> str:
        line_pattern(pattern, spans_lines=False)
        return pattern

    @property
    def layout(self) -> LineLayout:
        starts_with = None if self.multiline is None else self.multiline.starts_with
        return LineLayout(
            line_pattern(self.pattern, spans_lines=starts_with is not None), starts_with
        )


class FixedField(Model):
    """A column of fixed width."""

    name: str = Field(min_length=1)
    width: int = Field(ge=1, le=_MAX_WIDTH, strict=True)
    start: int | None = Field(default=None, ge=1, le=_MAX_WIDTH, strict=True)
    """Place of its first character, from 1. Default: after the column before."""
    type: str | None = None
    """SQL type. Default: inferred."""
    align: Literal["left", "right"] | None = None
    pad: str = Field(default=" ", min_length=1, max_length=1)
    """Character that fills the column."""

    @field_validator("type")
    @classmethod
    def _is_a_type(cls, dtype: str | None) -> str | None:
        if dtype is not None:
            sql_type(dtype)
        return dtype

    @model_validator(mode="after")
    def _padding_has_a_side(self) -> Self:
        if self.pad != " " and self.align is None:
            raise SettingError("pad", "`pad` needs `align`, the side that values stand at")
        if self.pad in "\r\n":
            raise SettingError("pad", "`pad` is not a line break")
        return self


class Fixed(Model):
    """Columns at fixed places of each line."""

    columns: Annotated[tuple[FixedField, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _columns_have_places_of_their_own(self) -> Self:
        before, names = 0, set[str]()
        for column in self.layout.columns:
            if column.name in names:
                raise SettingError("columns", f"{column.name!r} is named twice; name each once")
            if column.start < before:
                raise SettingError(
                    "columns",
                    f"{column.name!r} starts at {column.start + 1}, but the column before it ends at "
                    f"{before}: name columns in order, without overlap",
                )
            before, names = column.stop, names | {column.name}
        return self

    @property
    def layout(self) -> FixedLayout:
        columns, before = list[FixedColumn](), 0
        for field in self.columns:
            start = before if field.start is None else field.start - 1
            dtype = None if field.type is None else sql_type(field.type)
            align = None if field.align is None else Align(field.align)
            column = FixedColumn(
                name=field.name,
                start=start,
                width=field.width,
                type=dtype,
                align=align,
                pad=field.pad,
            )
            columns.append(column)
            before = start + field.width
        return FixedLayout(tuple(columns))


class Xml(Model):
    """Rows of an XML file."""

    row: str = Field(min_length=1)
    """Path of the element that is a row, such as `order/item`."""

    @field_validator("row")
    @classmethod
    def _is_a_path(cls, row: str) -> str:
        if not all(row.split("/")):
            raise ValueError("a path of elements' names, as in `row: order/item`")
        return row

    @property
    def layout(self) -> XmlLayout:
        return XmlLayout(tuple(self.row.split("/")))


def layout_of(*settings: Lines | Fixed | Xml | None) -> Layout | None:
    """Returns the layout of the setting that is given."""
    return next((given.layout for given in settings if given is not None), None)
