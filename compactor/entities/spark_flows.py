"""Flows of nodes and labels to their homes, and the pieces that tasks read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from compactor.entities.datasets import Located
from compactor.entities.tasks.connecting import LEFT, RIGHT
from compactor.entities.tasks.context import LABEL, NODE, DatasetPart, Partition
from compactor.files.places import addresses_of
from compactor.read.scan_pieces import pieces_of
from compactor.spark.shuffle.exchange import ByNumber, Divider
from compactor.spark.shuffle.jobs import Done, Flow
from compactor.spark.shuffle.packets import Batches, Packet
from compactor.spark.shuffle.task import PLACE_BITS
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TO_HOMES: Final = ByNumber(NODE, PLACE_BITS)


def dataset_parts(dataset: int, located: Located | None) -> Iterator[DatasetPart]:
    """Yields the pieces of a dataset: its files, or fragments of its tables; none if it is missing."""
    for at in () if located is None else located.whole:
        if at.is_file:
            is_local = addresses_of(at.place) is None
            place = str(Path(at.place).absolute()) if is_local else at.place
            yield DatasetPart(dataset, replace(at, place=place))
            continue
        store = open_store(at.place)
        for piece in pieces_of(CommitLog(store).current()):
            yield DatasetPart(dataset, replace(at, place=store.url), piece)


def homes_of(values: Done) -> dict[int, Partition]:
    """Returns the non-empty homes, by part."""
    return {
        part: msgspec.convert(summary["home"], Partition)
        for part, summary in values.summaries.items()
        if "home" in summary
    }


def first_nodes(parts: DataFrame, homes: Mapping[int, Partition]) -> Flow:
    """Labels the first node of each home with itself, because tasks run only where rows go.

    parts: the numbers of all parts.
    """
    numbers = list(homes)

    def prepare(batches: Batches) -> Iterator[Packet]:
        for batch in batches:
            found = np.asarray(batch.column(0))
            nodes = found[np.isin(found, numbers)] << PLACE_BITS
            yield from _one_packet({NODE: nodes, LABEL: nodes})

    return Flow(frame=parts, rank=0, divider=TO_HOMES, prepare=prepare, is_plain=True)


def plain_rows(
    spark: SparkSession, columns: Mapping[str, Any], rank: int, divider: Divider
) -> Flow:
    """Sends rows that Spark's driver has."""

    def prepare(batches: Batches) -> Iterator[Packet]:
        for _ in batches:
            yield from _one_packet(columns)

    frame = spark.range(0, 1, 1, 1)
    return Flow(frame=frame, rank=rank, divider=divider, prepare=prepare, is_plain=True)


def edges_of_pairs(spark: SparkSession, pairs: Sequence[tuple[int, int]], rank: int) -> Flow:
    """Sends pairs of entities to the homes of the first ones."""
    left, right = np.array(pairs, np.int64).T
    return plain_rows(spark, {LEFT: left, RIGHT: right}, rank, ByNumber(LEFT, PLACE_BITS))


def labels_home(labels: DataFrame, rank: int) -> Flow:
    """Sends labels to their nodes' homes. labels: rows node, component."""

    def prepare(batches: Batches) -> Iterator[Packet]:
        for batch in batches:
            yield from _one_packet({NODE: batch.column(0), LABEL: batch.column(1)})

    return Flow(frame=labels, rank=rank, divider=TO_HOMES, prepare=prepare, is_plain=True)


def _one_packet(columns: Mapping[str, Any]) -> Iterator[Packet]:
    batch = pa.RecordBatch.from_pydict(dict(columns))
    if batch.num_rows:
        yield Packet.of_rows(0, batch)
