"""Finds the files that a pipeline's file names: relative paths begin at its own folder."""

from __future__ import annotations

from compactor.pipelines.config.nodes import Node, Output, Source
from compactor.settings.paths import from_folder


def placed(node: Node, folder: str) -> Node:
    """Returns the node with its file or table as seen from the working directory."""
    if not isinstance(node, (Source, Output)):
        return node
    places = {"path": node.path, "table": node.table}
    return node.model_copy(
        update={key: from_folder(place, folder) for key, place in places.items() if place}
    )
