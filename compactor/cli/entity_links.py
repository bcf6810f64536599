"""Prints explanations of `entity-merge`, and writes the links of a run."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from compactor.cli.output import echo_json, echo_line
from compactor.entities.explain import Explanation
from compactor.entities.links import LINKS
from compactor.errors import UsageError
from compactor.files.write import check_sink_path, open_table_sink


def asked_of(explained: str | None, other: str | None) -> tuple[str, ...]:
    """Returns the entities to explain, none without `--explain`."""
    if other is not None and explained is None:
        raise UsageError(f"{other}: a second ID goes with --explain: leave it out")
    return tuple(each for each in (explained, other) if each is not None)


def check_links(edges: str | None, asked: tuple[str, ...]) -> None:
    """Raises `UsageError` for options that `--edges` does not go with."""
    if edges is not None:
        if asked:
            raise UsageError("--edges: leave it out with --explain, which writes nothing")
        check_sink_path(edges)


def write_links(path: str, batches: Iterable[pa.RecordBatch]) -> None:
    with open_table_sink(path, LINKS) as sink:
        for batch in batches:
            sink.write(batch)


def print_explanation(explanation: Explanation, *, as_json: bool) -> None:
    if as_json:
        echo_json(explanation.to_json())
        return
    for line in explanation.lines():
        echo_line(line)
