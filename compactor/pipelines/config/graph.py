"""Checks the node graph: inputs exist, no rows are lost, outputs do not collide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from compactor.errors import ConfigError
from compactor.pipelines.config.nodes import Node, Output, branches_of, inputs_of
from compactor.settings.mistakes import Mistakes, Place, instead_of
from compactor.settings.paths import identity

Fail = Callable[[Place, str], ConfigError]
"""Makes the error for a place in the file."""
MAX_CHAIN: Final = 200
"""The most nodes in a row: each waits for rows within the calls of those after it."""


def check_graph(nodes: Mapping[str, Node], fail: Fail) -> None:
    """Raises `fail(...)` for a missing input, rows that go nowhere, a cycle, or a chain that is too long."""
    mistakes = Mistakes()
    provided = {name for key, node in nodes.items() for name in branches_of(key, node)}
    for key, node in nodes.items():
        for name in inputs_of(node):
            if name not in provided:
                instead = instead_of(name, sorted(provided))
                text = f"node {key!r}: no node gives {name!r}; {instead}"
                mistakes.add(fail(("nodes", key), text))
    mistakes.check()  # a node whose name is wrong in an input would be one that nothing takes
    if not any(isinstance(node, Output) for node in nodes.values()):
        raise fail(("nodes",), "no node is an output: rows would go nowhere")
    used = {name.split(".")[0] for node in nodes.values() for name in inputs_of(node)}
    for key, node in nodes.items():
        if key not in used and not isinstance(node, Output):
            text = f"node {key!r}: nothing takes its rows; remove it, or name it as an input"
            mistakes.add(fail(("nodes", key), text))
    mistakes.check()
    _check_chains(nodes, fail)


def check_places(nodes: Mapping[str, Node], dead_letter: str | None, fail: Fail) -> None:
    """Raises `fail(...)` if two outputs, or an output and the dead letters, share a place."""
    mistakes = Mistakes()
    taken = {} if dead_letter is None else {identity(dead_letter): "the dead letters"}
    for key, node in nodes.items():
        if isinstance(node, Output):
            place = identity(node.path or node.table or "")
            if place in taken:
                text = f"node {key!r}: {taken[place]} go to the same place"
                mistakes.add(fail(("nodes", key), text))
            taken.setdefault(place, f"the rows of {key!r}")
    mistakes.check()


def _check_chains(nodes: Mapping[str, Node], fail: Fail) -> None:
    lengths: dict[str, int] = {}

    def length(key: str, path: tuple[str, ...]) -> int:
        """Returns how many nodes there are from a source to this one. path: the nodes after it."""
        if key in path:
            circle = " -> ".join((*path[path.index(key) :], key))
            raise fail(("nodes", key), f"nodes go round in a circle: {circle}")
        if key not in lengths and len(path) < MAX_CHAIN:
            inputs = [name.split(".")[0] for name in inputs_of(nodes[key])]
            lengths[key] = 1 + max((length(name, (*path, key)) for name in inputs), default=0)
        if lengths.get(key, MAX_CHAIN + 1) > MAX_CHAIN:
            text = (
                f"node {key!r}: a chain of more than {MAX_CHAIN} nodes, from a source to an output"
            )
            raise fail(
                ("nodes", key),
                f"{text}: compute more in each node, or divide it into several pipelines",
            )
        return lengths[key]

    for key in nodes:
        length(key, ())
