"""The node models of a pipeline. Each validates its own settings, independent of other nodes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from compactor.files.layouts import Layout, kind_with
from compactor.files.names import FRAGMENT, KNOWN_ENDINGS, FileKind
from compactor.files.places import STREAM
from compactor.files.text_options import PLAIN, TextOptions
from compactor.pipelines.config.layouts import Fixed, Lines, Xml, layout_of
from compactor.pipelines.config.model import EachOnce, Model, PlaceName, Text
from compactor.pipelines.config.text_files import CsvForm, WrittenCsv, check_is_csv, text_options
from compactor.pipelines.time_windows import END, START, window_sizes
from compactor.predicate.expressions.types import sql_type
from compactor.settings.mistakes import SettingError
from lsm_fragment.keys.sort_schema import SortSchema, parse_sort_schema

MAX_WINDOW_ROWS: Final = 1_000_000
"""Maximum rows that a window function looks back or ahead; it holds all of them."""


class _Place(Model):
    """Settings of a file or table."""

    path: PlaceName | None = None
    table: PlaceName | None = None
    """A folder or s3://bucket/prefix."""
    format: str | None = None
    """The format of files whose ending does not tell it, as an ending: `csv`, `ndjson.gz`."""

    @property
    def layout(self) -> Layout | None:
        """What the ending does not tell of the rows."""
        return None

    @property
    def kind(self) -> FileKind | None:
        """The kind of its files; None for a table, and where neither setting nor ending tells it."""
        return None if self.path is None else kind_with(self.path, self.layout, self.format)

    @model_validator(mode="after")
    def _is_file_or_table(self) -> Self:
        if (self.path is None) == (self.table is None):
            raise SettingError("path", "give `path` or `table`, one of the two")
        if self.format is not None and self.path is None:
            raise SettingError("format", "`format` is for files")
        if self.format is not None and self.kind is None:
            raise SettingError(
                "format", f"format: no {self.format!r}; known are the endings {KNOWN_ENDINGS}"
            )
        if self.path == STREAM and self.kind is None:
            raise SettingError(
                "path", "`path: '-'` has no ending: give `format`, as in `format: csv`"
            )
        return self


class Source(_Place):
    """Reads rows from a table or from files, by extension or by `lines`, `fixed` or `xml`.

    `path` may be a pattern, such as `logs/app-*.ndjson`.
    """

    where: str | None = None
    """SQL condition on a table; prunes fragments and row groups."""
    columns: Annotated[tuple[str, ...] | None, Field(min_length=1), EachOnce] = None
    fields: dict[str, str] | None = Field(default=None, min_length=1)
    """Column types of a file, in SQL; the others come from its values."""
    only_fields: bool = False
    """Whether all columns but `fields` go to `$widened`."""
    csv: CsvForm | None = None
    """Delimiter and so on of a CSV file."""
    encoding: str = PLAIN.encoding
    """Of a text file, as Python names it."""
    correlation_key: str | None = None
    """Rows with equal values, across all sources that set it, are written or set aside together."""
    lines: Lines | None = None
    fixed: Fixed | None = None
    xml: Xml | None = None

    _used: frozenset[str] | None = PrivateAttr(default=None)

    @property
    def used(self) -> frozenset[str] | None:
        """The columns to read, some of which may be missing; None for all."""
        return self._used

    def using(self, columns: frozenset[str] | None) -> Source:
        """Returns the source that reads its own `columns`, or else those that the graph uses."""
        source = self.model_copy()
        source._used = columns if self.columns is None else frozenset(self.columns)
        return source

    @property
    def layout(self) -> Layout | None:
        return layout_of(self.lines, self.fixed, self.xml)

    @field_validator("fields")
    @classmethod
    def _types_are_known(cls, fields: dict[str, str] | None) -> dict[str, str] | None:
        for name, dtype in (fields or {}).items():
            try:
                sql_type(dtype)
            except ValueError as error:
                raise ValueError(f"{name!r}: {error}") from None
        return fields

    @property
    def text_options(self) -> TextOptions:
        return text_options(self.csv, self.encoding, tuple(self.fields or ()))

    @model_validator(mode="after")
    def _text_options_fit(self) -> Self:
        if self.csv is not None:
            check_is_csv(self.kind)
        try:
            self.text_options  # noqa: B018 - raises `ValueError`
        except ValueError as error:
            raise SettingError("encoding", str(error)) from None
        return self

    @model_validator(mode="after")
    def _settings_fit_the_place(self) -> Self:
        if self.where is not None and self.table is None:
            raise SettingError("where", "`where` is for tables; use a transform's `filter`")
        if self.fields is not None and self.table is not None:
            raise SettingError("fields", "`fields` are for files; a table knows its columns")
        if self.only_fields and (self.fields is None or self.columns is not None):
            raise SettingError("only_fields", "`only_fields` needs `fields`, and no `columns`")
        layouts = [name for name in ("lines", "fixed", "xml") if getattr(self, name) is not None]
        if layouts and (self.table is not None or len(layouts) > 1):
            raise SettingError(layouts[-1], "one of `lines`, `fixed` and `xml`, for files")
        return self


class Window(Model):
    """The window of the window functions: partition, order and frame."""

    partition_by: Annotated[tuple[str, ...], EachOnce] = ()
    order_by: str
    """A sort schema, such as `ts:desc,id`."""
    rows: int | None = Field(default=None, ge=1, le=MAX_WINDOW_ROWS, strict=True)
    """Maximum rows of a frame, up to and including the current row. Default: all since the partition
    start."""


class Transform(Model):
    """Filters rows; selects or computes columns, row by row or over a window."""

    input: str
    window: Window | None = None
    filter: str | None = None
    """SQL condition."""
    columns: Annotated[tuple[str, ...] | dict[str, str] | None, EachOnce] = None
    """Column names, or SQL expressions by result name. Default: all columns unchanged."""
    batch_size: int | None = Field(default=None, ge=1)


class MergeMode(StrEnum):
    CONCAT = "concat"
    INTERLEAVE = "interleave"
    KEY = "key"
    ENTITY = "entity"


class Merge(Model):
    """Merges the rows of several nodes into one stream."""

    inputs: Annotated[tuple[str, ...], Field(min_length=1), EachOnce]
    mode: MergeMode = MergeMode.CONCAT
    interleave_seed: int | None = Field(default=None, ge=0, strict=True)
    sort_by: str | None = None
    """Sort schema of all inputs, for mode `key`."""
    entity: Any = None
    """Rules of mode `entity`: a mapping in the file, an `EntityMergeSpec` once loaded."""

    @model_validator(mode="before")
    @classmethod
    def _has_inputs(cls, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        if "input" in settings:
            raise SettingError("input", "a merge has `inputs`, a list: `inputs: [a, b]`")
        return settings

    @model_validator(mode="after")
    def _settings_fit_the_mode(self) -> Self:
        if self.interleave_seed is not None and self.mode is not MergeMode.INTERLEAVE:
            raise SettingError("interleave_seed", "interleave_seed needs `mode: interleave`")
        for setting, mode in (("sort_by", MergeMode.KEY), ("entity", MergeMode.ENTITY)):
            if (getattr(self, setting) is None) == (self.mode is mode):
                raise SettingError(
                    setting, f"`{setting}` goes with `mode: {mode}`, and must be there"
                )
        if self.entity is not None and not isinstance(self.entity, dict):
            raise SettingError("entity", "`entity` is a mapping, as in `entity: {equality: [...]}`")
        return self


class Route(Model):
    """Sends each row to the first branch whose condition holds, else to `otherwise`, else drops it."""

    input: str
    branches: dict[str, str] = Field(min_length=1)
    """SQL conditions by branch name; nodes refer to a branch as `route.branch`."""
    otherwise: str | None = None

    @model_validator(mode="after")
    def _otherwise_is_another_branch(self) -> Self:
        if self.otherwise in self.branches:
            raise SettingError("otherwise", f"{self.otherwise!r} is a branch already")
        return self


class Sort(Model):
    """Sorts all rows."""

    input: str
    by: str
    """A sort schema, such as `service,ts:desc`."""


class TimeWindow(Model):
    """Time windows that rows fall into."""

    column: str
    size: Text
    """A duration, such as `250ms`, `30s`, `5m`, `1h` or `1d`."""
    slide: Text | None = None
    """Distance between window starts. Default: the size."""
    origin: Text | None = None
    """Start of any one window. Default: 1970."""

    @model_validator(mode="after")
    def _sizes_are_lengths_of_time(self) -> Self:
        window_sizes(self.size, self.slide, self.origin)
        return self


class Aggregate(Model):
    """Aggregates rows per group, or per time window and group."""

    input: str
    window: TimeWindow | None = None
    group_by: Annotated[tuple[str, ...], EachOnce] = ()
    columns: dict[str, str]
    """Calls of aggregate functions by result name, such as `count` or `sum(price * n)`."""

    @model_validator(mode="after")
    def _groups_have_columns_of_their_own(self) -> Self:
        if self.window is None and not self.group_by and not self.columns:
            raise SettingError("columns", "without `group_by`, `columns` has at least one call")
        for name in (START, END) if self.window is not None else ():
            if name in self.group_by or name in self.columns:
                raise SettingError("columns", f"{name!r} is the window's; take another name")
        if both := set(self.group_by).intersection(self.columns):
            raise SettingError(
                "columns", f"{min(both)!r} is a group's column already; take another name"
            )
        return self


class Method(StrEnum):
    """Join method."""

    HASH = "hash"
    SORT_MERGE = "sort_merge"
    RANGE = "range"
    ASOF = "asof"


class RangeCondition(Model):
    """Requires that an interval of the build side contains a value of the probe side."""

    column: str
    """Probe-side column."""
    begin: str = Field(alias="from")
    """Build-side column of interval starts; null is unbounded, as in `end`."""
    end: str = Field(alias="to")
    closed: Literal["left", "right", "both", "neither"] = "left"
    """Which bounds belong to the interval."""


_OWN_SETTINGS: Final = {
    Method.RANGE: ("range", "{column: of the probe side, from: of the build side, to: ...}"),
    Method.ASOF: ("at", "{time of the probe side: time of the build side}"),
}
"""Setting that only one method has and needs, with an example."""


class Combine(Model):
    """Joins the rows of two nodes on equal columns, or on intervals that contain a value."""

    probe: str
    """Left side."""
    build: str
    """Right side, preferably the smaller one: `method: hash` holds it in memory."""
    on: tuple[str, ...] | dict[str, str] = ()
    """Columns of both sides by name, or columns or expressions of the build side by those of the probe."""
    how: Literal["inner", "left", "right", "full", "semi", "anti"] = "inner"
    """`semi` keeps probe rows with a match and `anti` those without, each once and with their own columns."""
    method: Method = Method.HASH
    range: RangeCondition | None = None
    """Condition of `method: range`."""
    at: dict[str, str] | None = None
    """Time column of the build side by that of the probe side, for `method: asof`."""

    @model_validator(mode="after")
    def _settings_fit_the_method(self) -> Self:
        if not self.on and self.method not in _OWN_SETTINGS:
            raise SettingError("on", "`on` is missing: the columns that are to be equal")
        if self.how not in ("inner", "left") and self.method in _OWN_SETTINGS:
            raise SettingError("how", f"`method: {self.method}` knows `how: inner` and `left` only")
        return self

    @model_validator(mode="after")
    def _has_the_setting_of_its_method(self) -> Self:
        setting, example = _OWN_SETTINGS.get(self.method, ("method", ""))
        if getattr(self, setting) is None:
            raise SettingError("method", f"`{setting}` is missing: `{setting}: {example}`")
        if self.at is not None and len(self.at) != 1:
            raise SettingError("at", "`at` is one time of each side: `at: {ts: begun}`")
        for method, (setting, _) in _OWN_SETTINGS.items():
            if method is not self.method and getattr(self, setting) is not None:
                raise SettingError(setting, f"`{setting}` needs `method: {method}`")
        return self


class Split(Model):
    """Splits an output into several files; each replaces the first `{}` of the path."""

    by: str | None = None
    """One file per value of this column."""
    rows: int | None = Field(default=None, ge=1, strict=True)
    """One file per this many rows."""
    documents: bool = False
    """One file per source file."""

    @model_validator(mode="after")
    def _is_by_one_thing(self) -> Self:
        if (self.by is not None) + (self.rows is not None) + self.documents != 1:
            raise ValueError("one of `by`, `rows` and `documents`")
        return self


class Output(_Place):
    """Writes rows to a table or a file, by extension or by `fixed`."""

    input: str
    sort_by: str | None = None
    """Sort schema of a fragment or a new table."""
    split: Split | None = None
    drop_widened: bool = False
    """Leaves out undeclared fields of the source."""
    csv: WrittenCsv | None = None
    """Delimiter, quote and header of a CSV file."""
    fixed: Fixed | None = None

    @property
    def layout(self) -> Layout | None:
        return layout_of(self.fixed)

    @property
    def sort(self) -> SortSchema | None:
        """The order of a fragment or a table."""
        return None if self.sort_by is None else parse_sort_schema(self.sort_by)

    @property
    def _is_fragment(self) -> bool:
        return self.kind == FRAGMENT

    @model_validator(mode="after")
    def _sort_fits_the_place(self) -> Self:
        if self.sort_by is not None and self.table is None and not self._is_fragment:
            raise SettingError(
                "sort_by", "`sort_by` is for tables and fragments; sort before, for a file"
            )
        if self._is_fragment and self.sort_by is None:
            raise SettingError("path", "a fragment is sorted: give `sort_by`")
        if self.fixed is not None and self.path is None:
            raise SettingError("fixed", "`fixed` is for files")
        return self

    @property
    def text_options(self) -> TextOptions:
        return PLAIN if self.csv is None else self.csv.options

    @model_validator(mode="after")
    def _csv_is_csv(self) -> Self:
        if self.csv is not None:
            check_is_csv(self.kind)
        return self

    @model_validator(mode="after")
    def _split_fits_the_place(self) -> Self:
        if self.split is None:
            return self
        if self.path is None:
            raise SettingError("split", "`split` is for files; a table has windows")
        if self._is_fragment and self.split.documents:
            raise SettingError(
                "split", "split: a fragment is sorted: split by a column, or by rows"
            )
        if self.path.count("{}") != 1 or "{}" not in Path(self.path).name:
            raise SettingError(
                "path", "with `split`, the file's name has one {}, as in out/app-{}.ndjson"
            )
        return self


Node = Source | Transform | Merge | Route | Sort | Aggregate | Combine | Output
NODES: Final[dict[str, type[Node]]] = {
    "source": Source,
    "transform": Transform,
    "merge": Merge,
    "route": Route,
    "sort": Sort,
    "aggregate": Aggregate,
    "combine": Combine,
    "output": Output,
}
"""Node kinds by their names in the file."""


def inputs_of(node: Node) -> tuple[str, ...]:
    """Returns the node's inputs; a route branch as `route.branch`."""
    match node:
        case Source():
            return ()
        case Merge():
            return node.inputs
        case Combine():
            return node.probe, node.build
        case _:
            return (node.input,)


def branches_of(key: str, node: Node) -> tuple[str, ...]:
    """Returns the edge names of the node `key`, as consumers refer to them."""
    match node:
        case Output():
            return ()
        case Route():
            branches = [*node.branches, *([] if node.otherwise is None else [node.otherwise])]
            return tuple(f"{key}.{branch}" for branch in branches)
        case _:
            return (key,)


def keys_of(node: Combine) -> list[tuple[str, str]]:
    """Returns the pairs of probe and build columns that must be equal."""
    return list(node.on.items()) if isinstance(node.on, dict) else [(n, n) for n in node.on]
