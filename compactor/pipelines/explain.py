"""Explains what a pipeline will do, using the executor's own decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from compactor.pipelines import stages
from compactor.pipelines.classify import ancestors, classify, is_live, topological_order
from compactor.pipelines.config import Node, Output, Pipeline, Source, inputs_of
from compactor.pipelines.projection import used_columns


def kind_of_node(node: Node) -> str:
    mode = getattr(node, "mode", getattr(node, "method", None))
    if getattr(node, "window", None) is not None:
        mode = "window"
    return f"{type(node).__name__.lower()}{f' {mode}' if mode else ''}"


def explained(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Returns one record per node, in topological order, without values of the environment."""
    forms, nodes = classify(pipeline.nodes), pipeline.nodes
    used = used_columns(nodes)
    init = ancestors(pipeline.init, nodes)
    found: list[dict[str, Any]] = []
    for name in topological_order(nodes):
        node = nodes[name]
        record: dict[str, Any] = {
            "node": name,
            "kind": kind_of_node(node),
            "inputs": list(inputs_of(node)),
        }
        if isinstance(node, Output):
            live, why = is_live(name, nodes, pipeline.init)
            record |= {"buffer": "streaming", "form": "live" if live else "written", "why": why}
            if name in forms:
                record |= {
                    "buffer": forms[name].form.buffer,
                    "form": "held",
                    "why": forms[name].why,
                }
            record["to"] = node.table or node.path
        else:
            form = forms[name]
            record |= {"buffer": form.form.buffer, "form": str(form.form), "why": form.why}
        if isinstance(node, Source):
            columns = node.columns or used[name]
            record["columns"] = None if columns is None else sorted(columns)
        if name in init:
            record["phase"] = "init"
            record["why"] = f"init phase; {record['why']}"
        found.append(record)
    return pipeline.variables.hide_in(found)


def as_json(pipeline: Pipeline, *, on_spark: bool = False) -> str:
    found: dict[str, Any] = {
        "memory_limit_bytes": pipeline.memory.limit,
        "batch_size": pipeline.batch_size,
        "nodes": explained(pipeline),
    }
    if on_spark:
        found["stages"] = stages.explained(pipeline)
    return json.dumps(found, indent=1)


def rows_of_stages(pipeline: Pipeline) -> list[list[str]]:
    """Returns the rows of the printed stage table: stage, nodes, inputs, shuffle."""
    return [
        [
            str(r["stage"]),
            ", ".join(r["nodes"]),
            ", ".join(r["takes_from"]),
            r["shuffle"] or "none: sources",
        ]
        for r in stages.explained(pipeline)
    ]


def as_dot(pipeline: Pipeline, *, on_spark: bool = False) -> str:
    """Returns the graph in Graphviz format: boxes are materialized nodes, bold arrows are Spark shuffles."""
    shuffles = _shuffles(pipeline) if on_spark else {}
    lines = ["digraph pipeline {", "  rankdir=LR;"]
    for record in explained(pipeline):
        shape = "box" if record["buffer"] == "materialized" else "ellipse"
        label = f"{record['node']}\\n{record['kind']}\\n{record['form']}"
        lines.append(f"  {_quoted(record['node'])} [shape={shape}, label={_quoted(label)}];")
    for record in explained(pipeline):
        for edge in record["inputs"]:
            node, _, branch = edge.partition(".")
            shuffle = shuffles.get(record["node"])
            label = "\\n".join(part for part in (branch, shuffle) if part)
            style = [f"label={_quoted(label)}"] if label else []
            style += ["style=bold"] if shuffle else []
            shown = f" [{', '.join(style)}]" if style else ""
            lines.append(f"  {_quoted(node)} -> {_quoted(record['node'])}{shown};")
    return "\n".join([*lines, "}"])


def _shuffles(pipeline: Pipeline) -> dict[str, str]:
    """Returns each node's preceding shuffle, where it has one."""
    return {
        stage.roots[0]: pipeline.variables.hide(str(stage.shuffle))
        for stage in stages.plan_stages(pipeline)
        if stage.shuffle is not None
    }


def rows_of(pipeline: Pipeline) -> list[list[str]]:
    """Returns the rows of the printed node table: node, kind, inputs, buffer, form, why."""
    return [
        [r["node"], r["kind"], ", ".join(r["inputs"]), r["buffer"], r["form"], _why(r)]
        for r in explained(pipeline)
    ]


def _why(record: Mapping[str, Any]) -> str:
    """Returns why a node has its form, and the names of the columns that a source reads if these are not all.

    A source may lack some of them: those of a join's other side, for example.
    """
    columns = record.get("columns")
    if columns is None:
        return str(record["why"])
    reads = f"only columns named {', '.join(columns)}" if columns else "none of its columns"
    return f"{record['why']}; reads {reads}"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'
