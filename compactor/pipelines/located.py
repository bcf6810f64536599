"""Adds the place in the pipeline's file, and the node, to errors of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from compactor.common.message import Message
from compactor.errors import CompactorError
from compactor.pipelines.config import Pipeline
from compactor.pipelines.provenance import Batches


@contextmanager
def at_node(pipeline: Pipeline, name: str) -> Iterator[None]:
    """Adds file, line and node to errors that the block raises, unless they have them already."""
    try:
        yield
    except CompactorError as error:
        locate(error, pipeline, name)
        raise


@contextmanager
def at_setting(pipeline: Pipeline, name: str) -> Iterator[None]:
    """Adds file and line of a setting to errors that the block raises."""
    try:
        yield
    except CompactorError as error:
        if (place := pipeline.place_of(name)) is not None:
            error.args = (Message(f"{place}: ", error.message),)
        raise


@contextmanager
def publishing(name: str, published: list[str]) -> Iterator[None]:
    """Adds an output to those that are published, which errors of the block name, if there are any."""
    try:
        yield
    except CompactorError as error:
        if published:
            names = ", ".join(map(repr, published))
            error.args = (Message(error.message, f"; published before, and in place, are {names}"),)
        raise
    published.append(name)


def rows_at(pipeline: Pipeline, name: str, batches: Batches) -> Batches:
    """Yields the rows of a node, whose errors get its place; those of nodes before have theirs."""
    with at_node(pipeline, name):
        yield from batches


def locate(error: CompactorError, pipeline: Pipeline, name: str) -> None:
    """Adds file, line and node to the message of an error, unless it has them already."""
    place = pipeline.place_of("nodes", name)
    if place is None or error.message.startswith(f"{place.rpartition(', line ')[0]}, line "):
        return
    node = f"node {name!r}"
    is_named = error.message.startswith(node) or f"{node}: " in error.message
    error.args = (Message(f"{place}: ", "" if is_named else f"{node}: ", error.message),)
