"""Accepts another spelling of a graph: a list of nodes with `name`, `type`, `inputs` and `config`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from pydantic import Field

from compactor.common.counts import counted
from compactor.pipelines.config.model import Model
from compactor.pipelines.config.nodes import NODES
from compactor.pipelines.config.spelled import (
    OTHER_KINDS,
    SAME_KINDS,
    our_name,
    settings_of,
    without_sections,
)
from compactor.settings.document import Document
from compactor.settings.mistakes import Mistakes, Place, instead_of

_INPUTS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(NODES, ("input",)),
    "source": (),
    "combine": ("probe", "build"),
}
"""The settings that take the `inputs` of a node, one each; a merge takes them as they are."""


class ListedNode(Model):
    """A node in a list of nodes."""

    name: str
    type: str
    """A kind of node, such as `source`."""
    description: str = ""
    inputs: list[str] = Field(default_factory=list)
    """The nodes whose rows it takes; the probe side of a combine before the build side."""
    input: str | dict[str, str] | None = None
    """The same, if it is one node; or those of a combine, by `probe` and `build`."""
    config: dict[str, Any] = Field(default_factory=dict)
    """The settings of its kind, without inputs."""


def by_name(document: Document) -> Document:
    """Returns the document with its list of nodes as a mapping by name; lines follow.

    Returns other documents as they are. Raises `ConfigError`.
    """
    raw = document.root.get("nodes")
    if not isinstance(raw, list):
        return document
    document = without_sections(document)
    listed: list[ListedNode] = []
    nodes: dict[str, Any] = {}
    mistakes = Mistakes()
    for index in range(len(raw)):
        with mistakes.noted():
            listed.append(node := _listed(document, index))
            settings = _settings(document, index, node)
            if node.name in nodes:
                raise document.fail(
                    ("nodes", index), f"two nodes have the name {node.name!r}: rename one"
                )
            nodes[node.name] = {node.type: settings}
    mistakes.check()

    def moved(place: Place) -> Place:
        if len(place) < 2 or place[0] != "nodes" or not isinstance(place[1], int):
            return place
        node, within = listed[place[1]], place[2:]
        if within[:1] == ("config",):
            settings = [our_name(node.type, str(key)) for key in within[1:2]]
            return ("nodes", node.name, node.type, *settings, *within[2:])
        if within == ("inputs",):
            return ("nodes", node.name, node.type, "inputs")
        return ("nodes", node.name)

    return document.moved(document.root | {"nodes": nodes}, moved)


def _listed(document: Document, index: int) -> ListedNode:
    place: Place = ("nodes", index)
    what = f"nodes[{index}]: "
    if not isinstance(document.root["nodes"][index], dict):
        raise document.fail(
            place, f"{what}a node has `name`, `type`, `inputs` and `config`, each by its name"
        )
    node = document.section(place, what).as_model(ListedNode)
    node = node.model_copy(update={"type": SAME_KINDS.get(node.type, node.type)})
    if node.type not in NODES:
        other = OTHER_KINDS.get(node.type)
        instead = instead_of(node.type, NODES) if other is None else other
        raise document.fail(
            (*place, "type"), f"node {node.name!r}: no type {node.type!r}; {instead}"
        )
    return node


def _settings(document: Document, index: int, node: ListedNode) -> dict[str, Any]:
    """Returns the settings of a node with its inputs among them."""
    place: Place = ("nodes", index)
    taken = _INPUTS[node.type]

    def fail(setting: str, message: str) -> NoReturn:
        raise document.fail((*place, "config", setting), f"node {node.name!r}: {message}")

    for name in (*taken, "inputs"):
        if name in node.config:
            fail(name, f"`{name}` stands beside `config`: `inputs: [...]`")
    inputs = _inputs(document, place, node)
    settings = settings_of(node.type, node.config, fail)
    if node.type == "merge":
        return {"inputs": inputs} | settings
    if len(inputs) != len(taken):
        needed = counted(len(taken), "input") if taken else "no inputs"
        order = ": the probe side, then the build side" if len(taken) > 1 else ""
        raise document.fail(
            (*place, "inputs"),
            f"node {node.name!r}: {node.type} has {needed}, and `inputs` names {len(inputs)}{order}",
        )
    return dict(zip(taken, inputs, strict=True)) | settings


def _inputs(document: Document, place: Place, node: ListedNode) -> list[str]:
    """Returns the inputs of a node in order, however they are given."""
    if node.input is None:
        return node.inputs
    if isinstance(node.input, str) and not node.inputs:
        return [node.input]
    sides = _INPUTS["combine"]
    if node.type != "combine" or node.inputs or set(node.input) != set(sides):
        raise document.fail(
            (*place, "input"),
            f"node {node.name!r}: `input` names one node, `inputs` is a list; a combine has "
            "`inputs: [probe, build]`, or `input: {probe: ..., build: ...}`",
        )
    assert isinstance(node.input, dict)
    return [node.input[side] for side in sides]
