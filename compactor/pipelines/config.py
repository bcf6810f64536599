"""A pipeline as its YAML file says it, checked: every mistake is named with its line, its node and what would
be right. Pure but for reading the file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError

from compactor.entities.spec import EntityMergeSpec, spec_of
from compactor.errors import ConfigError
from compactor.files.names import FRAGMENT, kind_of
from compactor.pipelines.time_windows import END, START, window_sizes
from compactor.pipelines.types import TYPES
from compactor.settings.document import Document
from compactor.settings.fields import TASK_MEMORY_BYTES, Bytes
from compactor.settings.messages import cause

MIB: Final = 1 << 20


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Source(_Model):
    """Rows from a file, or from a table."""

    path: str | None = None
    """Parquet, Arrow, NDJSON or CSV, by its ending; or several files, as `logs/app-*.ndjson`."""
    table: str | None = None
    """A folder or s3://bucket/prefix."""
    where: str | None = None
    """SQL, for tables: what cannot fulfil it is not read."""
    columns: tuple[str, ...] | None = Field(default=None, min_length=1)
    fields: dict[str, str] | None = Field(default=None, min_length=1)
    """Columns of a file with their types in SQL; what else it has goes to `$widened`."""
    correlation_key: str | None = None
    """Rows of equal values, of all sources that declare one, are written together or put aside together."""


MOST_WINDOW_ROWS: Final = 1_000_000
"""That a window function may look back or ahead: they are held."""


class Window(_Model):
    """Which rows a row's window functions look at, and in which order."""

    partition_by: tuple[str, ...] = ()
    order_by: str
    """As a sort schema: `ts:desc,id`."""
    rows: int | None = Field(default=None, ge=1, le=MOST_WINDOW_ROWS, strict=True)
    """Most rows of a frame, the row itself and those before it; default: all since the partition began."""


class Transform(_Model):
    """Rows kept by a condition; columns chosen or computed, row by row, or over a window of rows."""

    input: str
    window: Window | None = None
    filter: str | None = None
    """SQL."""
    columns: dict[str, str] | tuple[str, ...] | None = None
    """Names, or SQL expressions by the name of their result. Default: all as they are."""
    batch_size: int | None = Field(default=None, ge=1)


class MergeMode(StrEnum):
    CONCAT = "concat"
    INTERLEAVE = "interleave"
    KEY = "key"
    ENTITY = "entity"


class Merge(_Model):
    """Rows of several nodes as those of one."""

    inputs: tuple[str, ...] = Field(min_length=1)
    mode: MergeMode = MergeMode.CONCAT
    interleave_seed: int | None = Field(default=None, ge=0, strict=True)
    sort_by: str | None = None
    """For mode key: what all inputs are sorted by."""
    entity: Any = None
    """For mode entity: which rows of the inputs are the same thing; an `EntityMergeSpec` once it is read."""


class Route(_Model):
    """Rows to the first branch whose condition holds; those of none go to `otherwise`, or nowhere."""

    input: str
    branches: dict[str, str] = Field(min_length=1)
    """Conditions in SQL, by the name of their branch; nodes name one as `route.branch`."""
    otherwise: str | None = None


class Sort(_Model):
    input: str
    by: str
    """As a sort schema: `service,ts:desc`."""


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, (int, float)) else value


class TimeWindow(_Model):
    """Windows of time that rows fall into."""

    column: str
    size: Annotated[str, BeforeValidator(_as_text)]
    """`30s`, `5m`, `1h`, `1d`, `250ms`."""
    slide: Annotated[str, BeforeValidator(_as_text)] | None = None
    """From the start of one to that of the next. Default: the size."""
    origin: Annotated[str, BeforeValidator(_as_text)] | None = None
    """When one of them starts. Default: 1970."""


class Aggregate(_Model):
    input: str
    window: TimeWindow | None = None
    group_by: tuple[str, ...] = ()
    columns: dict[str, str]
    """`count`, or `sum(x)`, `min(x)`, `max(x)`, `mean(x)`, `count(x)`, by the name of the result."""


class Method(StrEnum):
    """How rows of two nodes are joined."""

    HASH = "hash"
    SORT_MERGE = "sort_merge"
    RANGE = "range"
    ASOF = "asof"


class RangeCondition(_Model):
    """Intervals of the build side that contain a value of the probe side."""

    column: str
    """Of the probe side."""
    begin: str = Field(alias="from")
    """Of the build side; null is no bound, as with `end`."""
    end: str = Field(alias="to")
    closed: Literal["left", "right", "both", "neither"] = "left"
    """Which bounds belong to the interval."""


class Combine(_Model):
    """Rows of two nodes joined where columns are equal, or where intervals contain a value."""

    probe: str
    """The left side."""
    build: str
    """The right side. With `method: hash` it is held in memory: the smaller one."""
    on: dict[str, str] | tuple[str, ...] = ()
    """Names that both have; or of the build side's, by the probe side's."""
    how: Literal["inner", "left", "right", "full"] = "inner"
    method: Method = Method.HASH
    range: RangeCondition | None = None
    """For method range."""
    at: dict[str, str] | None = None
    """For method asof: when a row of the probe side is, and one of the build side."""


class Split(_Model):
    """Several files for one output; the first `{}` of its path says which is which."""

    by: str | None = None
    """A file a value of this column."""
    rows: int | None = Field(default=None, ge=1, strict=True)
    """A file so many rows."""
    documents: bool = False
    """A file for each file of a source."""


class Output(_Model):
    input: str
    path: str | None = None
    """Parquet, Arrow, fragment, NDJSON, CSV or XML, by its ending."""
    table: str | None = None
    sort_by: str | None = None
    """Of a fragment, or of a new table."""
    split: Split | None = None
    drop_widened: bool = False
    """Fields that the source's columns do not know are left out."""


Node = Source | Transform | Merge | Route | Sort | Aggregate | Combine | Output
_KINDS: Final[dict[str, type[_Model]]] = {
    "source": Source,
    "transform": Transform,
    "merge": Merge,
    "route": Route,
    "sort": Sort,
    "aggregate": Aggregate,
    "combine": Combine,
    "output": Output,
}


class Memory(_Model):
    limit: Bytes = Field(default=TASK_MEMORY_BYTES, ge=MIB)


class Pipeline(_Model):
    """Nodes by name, in the order of the file."""

    nodes: dict[str, Any]
    memory: Memory = Memory()
    batch_size: int = Field(default=2048, ge=1, le=2**31 - 1, strict=True)
    on_error: Literal["fail_fast", "continue"] = "fail_fast"
    dead_letter: str | None = None
    """Where bad records go with `continue`: an NDJSON file."""
    init: tuple[str, ...] = ()
    """Outputs that are written, and there, before anything else begins."""
    max_group_buffer: int = Field(default=10_000, ge=1, strict=True)
    """Most rows of one group (see `correlation_key`) that wait for an output."""
    _places: dict[str, str] = PrivateAttr(default_factory=dict)

    def located(self, node: str, error: ConfigError) -> ConfigError:
        """The error with the file and line of the node."""
        place = self._places.get(node)
        return error if place is None else ConfigError(f"{place}: {error}")


def inputs_of(node: Node) -> tuple[str, ...]:
    """Names of the nodes that it takes rows from; a branch of a route as `route.branch`."""
    match node:
        case Source():
            return ()
        case Merge():
            return node.inputs
        case Combine():
            return node.probe, node.build
        case _:
            return (node.input,)


def keys_of(node: Combine) -> list[tuple[str, str]]:
    """Columns of the probe side, and of the build side, that are to be equal."""
    return list(node.on.items()) if isinstance(node.on, dict) else [(n, n) for n in node.on]


def load_pipeline(path: str) -> Pipeline:
    """Raises `ConfigError` naming file and line."""
    return _pipeline_of(Document.read(path))


def parse_pipeline(text: str, name: str) -> Pipeline:
    """As `load_pipeline`. name: for errors; of JSON if it ends in .json."""
    return _pipeline_of(Document.parse(text, name))


def _pipeline_of(settings: Document) -> Pipeline:
    document, fail = dict(settings.root), settings.fail
    odd = _first_odd_key(document, set())
    if odd is not None:
        raise fail((), f"{odd!r} stands where a name should: put it in quotes")
    raw = document.get("nodes")
    if not isinstance(raw, dict) or not raw:
        raise fail(("nodes",), "`nodes` is a mapping of at least one node by its name")
    if not isinstance(document.get("memory", {}), dict):
        raise fail(("memory",), "memory: a mapping, as in `memory: {limit: 512MiB}`")
    nodes: dict[str, Node] = {}
    for key, value in raw.items():
        nodes[str(key)] = _node(str(key), value, settings)
    pipeline: Pipeline = _validated(Pipeline, document | {"nodes": nodes}, (), "the pipeline", fail)
    pipeline._places.update({key: settings.place_of(("nodes", key)) for key in nodes})
    _check_edges(nodes, fail)
    _check_places(nodes, pipeline.dead_letter, fail)
    for name in pipeline.init:
        if not isinstance(nodes.get(name), Output):
            there = ", ".join(key for key, node in nodes.items() if isinstance(node, Output))
            raise fail(("init",), f"init: {name!r} is no output; there are: {there}")
    if pipeline.on_error == "continue" and pipeline.dead_letter is None:
        raise fail(("on_error",), "on_error: continue needs a `dead_letter` file for bad records")
    return pipeline


def _node(key: str, value: Any, document: Document) -> Node:
    place, fail = ("nodes", key), document.fail
    if "." in key or not key:
        raise fail(place, f"node {key!r}: a name without a dot")
    if not isinstance(value, dict) or len(value) != 1:
        raise fail(
            place, f"node {key!r} is one of {', '.join(_KINDS)}, as in `{key}: {{source: ...}}`"
        )
    [(kind, settings)] = value.items()
    if kind not in _KINDS:
        raise fail((*place, kind), f"node {key!r}: {kind!r} is none of {', '.join(_KINDS)}")
    if kind == "merge" and isinstance(settings, dict) and "input" in settings:
        raise fail(
            (*place, kind, "input"), f"node {key!r}: a merge has `inputs`, a list: `inputs: [a, b]`"
        )
    if not isinstance(settings, dict):
        raise fail((*place, kind), f"node {key!r}: {kind} is a mapping of settings")
    node: Node = _validated(_KINDS[kind], settings, (*place, kind), f"node {key!r}", fail)
    _check_node(key, node, lambda field, message: fail((*place, kind, field), message))
    if isinstance(node, Merge) and node.entity is not None:
        section = document.section((*place, kind, "entity"), f"node {key!r}: entity: ")
        node = node.model_copy(update={"entity": _entity_spec(node, section)})
    return node


def _entity_spec(node: Merge, section: Document) -> EntityMergeSpec:
    """Of a merge: its inputs are the datasets, by aliases of their names."""
    for name in ("sources", "initial_datasets", "ignore_non_existent_datasets"):
        if name in section.root:
            raise section.fail((name,), f"{name}: the datasets are the `inputs` of the merge")
    aliases = [f"{name} {name.replace('.', '_')}" for name in node.inputs]
    section.root.setdefault("datasets", aliases)
    spec = spec_of(section)
    if [dataset.name for dataset in spec.datasets] != list(node.inputs):
        raise section.fail(
            ("datasets",),
            f"datasets: name all inputs in order, as in {aliases}",
        )
    return spec


def _check_node(key: str, node: Node, fail: Any) -> None:
    if isinstance(node, (Source, Output)) and (node.path is None) == (node.table is None):
        raise fail("path", f"node {key!r}: give `path` or `table`, one of the two")
    if isinstance(node, Source) and node.where is not None and node.table is None:
        raise fail("where", f"node {key!r}: `where` is for tables; use a transform's `filter`")
    if isinstance(node, Source) and node.table is not None and node.fields is not None:
        raise fail("fields", f"node {key!r}: `fields` are for files; a table knows its columns")
    if isinstance(node, Source) and node.fields is not None:
        for name, dtype in node.fields.items():
            if dtype.upper() not in TYPES:
                raise fail(
                    "fields",
                    f"node {key!r}: fields: {name!r}: no type {dtype!r}; types are: {', '.join(TYPES)}",
                )
    if isinstance(node, Output):
        _check_output(key, node, fail)
    columns = getattr(node, "columns", None)
    for names in (columns, getattr(node, "group_by", None)):
        if isinstance(names, tuple) and len(set(names)) < len(names):
            raise fail("columns", f"node {key!r}: a column is named twice")
    if isinstance(node, Aggregate):
        _check_groups(key, node, fail)
    if isinstance(node, Transform) and node.window is not None:
        by = node.window.partition_by
        if len(set(by)) < len(by):
            raise fail("window", f"node {key!r}: window.partition_by: a column is named twice")
    if isinstance(node, Aggregate) and (both := set(node.group_by).intersection(node.columns)):
        raise fail(
            "columns", f"node {key!r}: {min(both)!r} is a group's column already; take another name"
        )
    if isinstance(node, Route) and node.otherwise in node.branches:
        raise fail("otherwise", f"node {key!r}: {node.otherwise!r} is a branch already")
    for setting in ("path", "table"):
        place = getattr(node, setting, None)
        if place is not None and (not place or "\0" in place):
            raise fail(setting, f"node {key!r}: {setting}: no name of a place")
    if isinstance(node, Combine):
        _check_combine(key, node, fail)
    if isinstance(node, Merge):
        if node.interleave_seed is not None and node.mode is not MergeMode.INTERLEAVE:
            raise fail("interleave_seed", f"node {key!r}: interleave_seed needs `mode: interleave`")
        if (node.sort_by is None) == (node.mode is MergeMode.KEY):
            raise fail(
                "sort_by", f"node {key!r}: `sort_by` goes with `mode: key`, and must be there"
            )
        if (node.entity is None) == (node.mode is MergeMode.ENTITY):
            raise fail(
                "entity", f"node {key!r}: `entity` goes with `mode: entity`, and must be there"
            )
        if node.entity is not None and not isinstance(node.entity, dict):
            raise fail(
                "entity",
                f"node {key!r}: `entity` is a mapping, as in `entity: {{equality: [...]}}`",
            )
        if len(set(node.inputs)) < len(node.inputs):
            raise fail("inputs", f"node {key!r}: an input is named twice")


_OWN_SETTINGS: Final = {
    Method.RANGE: ("range", "{column: of the probe side, from: of the build side, to: ...}"),
    Method.ASOF: ("at", "{time of the probe side: time of the build side}"),
}


def _check_combine(key: str, node: Combine, fail: Any) -> None:
    if not node.on and node.method not in _OWN_SETTINGS:
        raise fail("on", f"node {key!r}: `on` is missing: the columns that are to be equal")
    if node.how in ("right", "full") and node.method is not Method.SORT_MERGE:
        raise fail(
            "how",
            f"node {key!r}: `how: {node.how}` needs `method: sort_merge`; others know inner, left",
        )
    setting, example = _OWN_SETTINGS.get(node.method, ("method", ""))
    if getattr(node, setting) is None:
        raise fail("method", f"node {key!r}: `{setting}` is missing: `{setting}: {example}`")
    if node.at is not None and len(node.at) != 1:
        raise fail("at", f"node {key!r}: `at` is one time of each side: `at: {{ts: begun}}`")
    for method, (setting, _) in _OWN_SETTINGS.items():
        if method is not node.method and getattr(node, setting) is not None:
            raise fail(setting, f"node {key!r}: `{setting}` needs `method: {method}`")


def _check_groups(key: str, node: Aggregate, fail: Any) -> None:
    if node.window is None:
        if not node.group_by:
            raise fail("group_by", f"node {key!r}: `group_by` names at least one column")
        return
    try:
        window_sizes(node.window.size, node.window.slide, node.window.origin)
    except ValueError as error:
        raise fail("window", f"node {key!r}: window.{error}") from None
    for name in (START, END):
        if name in node.group_by or name in node.columns:
            raise fail("columns", f"node {key!r}: {name!r} is the window's; take another name")


def _check_output(key: str, node: Output, fail: Any) -> None:
    is_fragment = kind_of(node.path or "") == FRAGMENT
    if node.sort_by is not None and node.table is None and not is_fragment:
        raise fail(
            "sort_by",
            f"node {key!r}: `sort_by` is for tables and fragments; sort before, for a file",
        )
    if is_fragment and node.sort_by is None:
        raise fail("path", f"node {key!r}: a fragment is sorted: give `sort_by`")
    if node.split is None:
        return
    if node.path is None:
        raise fail("split", f"node {key!r}: `split` is for files; a table has windows")
    if is_fragment and node.split.documents:
        raise fail(
            "split", f"node {key!r}: split: a fragment is sorted: split by a column, or by rows"
        )
    if (node.split.by is not None) + (node.split.rows is not None) + node.split.documents != 1:
        raise fail("split", f"node {key!r}: split: one of `by`, `rows` and `documents`")
    if node.path.count("{}") != 1 or "{}" not in Path(node.path).name:
        raise fail(
            "path",
            f"node {key!r}: with `split`, the file's name has one {{}}, as in out/app-{{}}.ndjson",
        )


def _check_edges(nodes: Mapping[str, Node], fail: Any) -> None:
    provided: set[str] = set()
    for key, node in nodes.items():
        if isinstance(node, Route):
            provided.update(f"{key}.{branch}" for branch in node.branches)
            if node.otherwise is not None:
                provided.add(f"{key}.{node.otherwise}")
        elif not isinstance(node, Output):
            provided.add(key)
    for key, node in nodes.items():
        for name in inputs_of(node):
            if name not in provided:
                there = ", ".join(sorted(provided)) or "none"
                raise fail(
                    ("nodes", key), f"node {key!r}: no node gives {name!r}; there are: {there}"
                )
    if not any(isinstance(node, Output) for node in nodes.values()):
        raise fail(("nodes",), "no node is an output: rows would go nowhere")
    used = {name.split(".")[0] for node in nodes.values() for name in inputs_of(node)}
    for key, node in nodes.items():
        if key not in used and not isinstance(node, Output):
            raise fail(
                ("nodes", key),
                f"node {key!r}: nothing takes its rows; remove it, or name it as an input",
            )
    _check_acyclic(nodes, fail)


def _check_places(nodes: Mapping[str, Node], dead_letter: str | None, fail: Any) -> None:
    """No two outputs to one place."""
    taken = {} if dead_letter is None else {_absolute(dead_letter): "the dead letters"}
    for key, node in nodes.items():
        if isinstance(node, Output):
            place = _absolute(node.path or node.table or "")
            if place in taken:
                raise fail(("nodes", key), f"node {key!r}: {taken[place]} go to the same place")
            taken[place] = f"the rows of {key!r}"


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.realpath(path)


def _first_odd_key(value: Any, seen: set[int]) -> Any:
    """A key that is no text, anywhere; None if there is none."""
    if id(value) in seen:
        return None
    if isinstance(value, (dict, list)):
        seen.add(id(value))
    for key in value if isinstance(value, dict) else ():
        if not isinstance(key, str):
            return "null" if key is None else key
    for part in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        if (odd := _first_odd_key(part, seen)) is not None:
            return odd
    return None


def _check_acyclic(nodes: Mapping[str, Node], fail: Any) -> None:
    done: set[str] = set()

    def visit(key: str, path: tuple[str, ...]) -> None:
        if key in path:
            circle = " -> ".join((*path[path.index(key) :], key))
            raise fail(("nodes", key), f"nodes go round in a circle: {circle}")
        if key not in done:
            for name in inputs_of(nodes[key]):
                visit(name.split(".")[0], (*path, key))
            done.add(key)

    for key in nodes:
        visit(key, ())


def _validated(model: Any, value: Any, place: tuple[Any, ...], what: str, fail: Any) -> Any:
    try:
        return model(**value)
    except ValidationError as error:
        first = error.errors()[0]
        where = tuple(part for part in first["loc"] if not isinstance(part, int))
        inner = _model_of(model, where)
        if inner is not None:
            what, model, place, where = f"{what}: {where[0]}", inner, (*place, where[0]), where[1:]
        field = str(where[0]) if where else ""
        if first["type"] == "extra_forbidden":
            known = ", ".join(f.alias or name for name, f in model.model_fields.items())
            raise fail(
                (*place, *where), f"{what}: no setting {field!r}; there are: {known}"
            ) from None
        if first["type"] == "missing":
            raise fail(place, f"{what}: `{field}` is missing") from None
        raise fail((*place, *where), f"{what}: {field}: {cause(first)}") from None


def _model_of(model: Any, where: tuple[Any, ...]) -> Any:
    """Of a setting that has settings of its own, if the mistake is within."""
    field = model.model_fields.get(where[0]) if len(where) > 1 else None
    kinds = () if field is None else (field.annotation, *get_args(field.annotation))
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, _Model)), None)
