"""Loads a pipeline from YAML. Errors name line, node and correction."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ValidationError

from compactor.pipelines.config.graph import Fail, check_graph, check_places
from compactor.pipelines.config.listed import by_name
from compactor.pipelines.config.model import Model
from compactor.pipelines.config.nodes import NODES, Merge, Node
from compactor.pipelines.config.paths import placed
from compactor.pipelines.config.pipeline import Pipeline
from compactor.pipelines.config.variables import Variables
from compactor.predicate.instant import at_instant
from compactor.settings.document import Document
from compactor.settings.mistakes import Mistakes, Place, all_mistakes, with_others
from compactor.settings.paths import from_folder

if TYPE_CHECKING:
    from compactor.entities.spec import EntityMergeSpec

_Model = TypeVar("_Model", bound=Model)
_WITH_SQL: Final = ("where", "filter", "branches", "columns")
EXAMPLES: Final = {
    "source": "{path: app.ndjson}",
    "transform": "{input: logs, filter: status >= 500}",
    "merge": "{inputs: [day1, day2]}",
    "route": "{input: logs, branches: {slow: took > 1000}}",
    "sort": "{input: logs, by: 'service,ts:desc'}",
    "aggregate": "{input: logs, group_by: [service], columns: {requests: count}}",
    "combine": "{probe: logs, build: services, on: [service]}",
    "output": "{input: logs, path: errors.parquet}",
}
"""Example settings of each node kind, for messages."""


def load_pipeline(path: str | os.PathLike[str]) -> Pipeline:
    """Reads a file. Raises `ConfigError` naming file and line."""
    document = Document.read(path)
    pipeline = _pipeline_of(document)
    pipeline._path = document.name
    return pipeline


def parse_pipeline(text: str, name: str) -> Pipeline:
    """Parses JSON if the name ends in .json, else YAML. Raises `ConfigError` naming the line."""
    return _pipeline_of(Document.parse(text, name))


def _pipeline_of(document: Document) -> Pipeline:
    variables = Variables()
    variables.fill(document)
    with variables.hidden():
        pipeline = _checked(document)
    pipeline._variables = variables
    return pipeline


def _checked(document: Document) -> Pipeline:
    document = by_name(document)
    settings, fail = document.root, document.fail
    odd = _first_odd_key(settings, set())
    if odd is not None:
        raise fail((), f"{odd!r} stands where a name should: put it in quotes")
    raw = settings.get("nodes")
    if not isinstance(raw, dict) or not raw:
        raise fail(
            ("nodes",), "`nodes` is a mapping of nodes by name, or a list: give at least one"
        )
    instant, folder = datetime.now(UTC), os.path.dirname(document.name)  # noqa: PTH120 - "" for here
    nodes, mistakes = {}, Mistakes()
    for key, value in raw.items():
        with mistakes.noted():
            nodes[key] = placed(_at_instant(_node(key, value, document), instant), folder)
    if isinstance(letters := settings.get("dead_letter"), str) and letters:
        settings["dead_letter"] = from_folder(letters, folder)
    given = settings | {"nodes": nodes}
    if len(nodes) < len(raw):
        given.pop("init", None)  # it may name outputs that have mistakes
    with mistakes.noted():
        pipeline = _validated(Pipeline, given, (), "the pipeline", fail)
    mistakes.check()
    settings_with_places = [("dead_letter",), *(("nodes", key) for key in nodes)]
    pipeline._places.update({each: document.place_of(each) for each in settings_with_places})
    check_graph(nodes, fail)
    check_places(nodes, pipeline.dead_letter, fail)
    return pipeline


def _node(key: str, value: Any, document: Document) -> Node:
    place, fail = ("nodes", key), document.fail
    if "." in key or not key:
        raise fail(place, f"node {key!r}: a name without a dot")
    if not isinstance(value, dict) or len(value) != 1:
        raise fail(place, f"node {key!r}: name its one kind, {_form(key, _meant(value))}")
    [(kind, settings)] = value.items()
    if kind not in NODES:
        meant = _meant(value)
        instead = f"did you mean {meant!r}" if meant else f"there are: {', '.join(NODES)}"
        form = f"{_form(key, meant)}{'?' if meant else ''}"
        raise fail((*place, kind), f"node {key!r}: no kind {kind!r}; {instead}, {form}")
    if not isinstance(settings, dict):
        raise fail((*place, kind), f"node {key!r}: {kind} has settings, {_form(key, kind)}")
    node = _validated(NODES[kind], settings, (*place, kind), f"node {key!r}", fail)
    if isinstance(node, Merge) and node.entity is not None:
        section = document.section((*place, kind, "entity"), f"node {key!r}: entity: ")
        node = node.model_copy(update={"entity": _entity_spec(node, section)})
    return node


def _at_instant(node: Node, instant: datetime) -> Node:
    """Writes the instant into the node's SQL, so that `now()` is the same for all nodes and tasks."""
    changed: dict[str, Any] = {}
    for setting in _WITH_SQL:
        value = getattr(node, setting, None)
        if isinstance(value, str):
            changed[setting] = at_instant(value, instant)
        elif isinstance(value, dict):
            changed[setting] = {name: at_instant(text, instant) for name, text in value.items()}
    return node.model_copy(update=changed) if changed else node


def _meant(value: object) -> str | None:
    """Returns the node kind that a text is closest to, such as `{type: source}` or `{sourse: ...}`."""
    parts = [*value, *value.values()] if isinstance(value, dict) else [value]
    near = (get_close_matches(part, NODES, n=1) for part in parts if isinstance(part, str))
    return next((kinds[0] for kinds in near if kinds), None)


def _form(key: str, kind: str | None) -> str:
    shown = kind or "source"
    return f"as in `{key}: {{{shown}: {EXAMPLES[shown]}}}`"


def _entity_spec(node: Merge, section: Document) -> EntityMergeSpec:
    """Reads the rules of an entity merge; its inputs are the datasets, under aliases of their names."""
    from compactor.entities.spec import spec_of

    for name in ("sources", "types", "initial_datasets", "ignore_non_existent_datasets"):
        if name in section.root:
            raise section.fail((name,), f"{name}: the datasets are the `inputs` of the merge")
    for name in ("max_ended_percent", "min_ended"):
        if name in section.root:
            raise section.fail(
                (name,), f"{name}: a pipeline has no earlier run to compare with; leave it out"
            )
    aliases = [f"{name} {name.replace('.', '_')}" for name in node.inputs]
    section.root.setdefault("datasets", aliases)
    section.root.setdefault("version", 2)
    spec = spec_of(section)
    if [dataset.name for dataset in spec.datasets] != list(node.inputs):
        raise section.fail(
            ("datasets",),
            f"datasets: name all inputs in order, as in {aliases}",
        )
    return spec


def _first_odd_key(value: Any, seen: set[int]) -> Any:
    """Returns any key in the value that is not text, with 'null' for None; None if all are text."""
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


def _validated(
    model: type[_Model], settings: Mapping[str, Any], place: Place, what: str, fail: Fail
) -> _Model:
    """Validates settings against a model. place: position in the file. what: subject of messages."""
    try:
        return model(**settings)
    except ValidationError as error:
        found = all_mistakes(error, model)
    raise with_others([fail((*place, *m.place), f"{what}: {m.message}") for m in found])
