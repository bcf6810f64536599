"""Connected components of a graph too large for one process: randomised contraction on DataFrames.

Each round, every node takes as its representative the first of itself and its neighbours, by an order
drawn anew for the round. Edges then join representatives instead of nodes; those within one vanish, and
so does a component once it has a single representative. At most 3/4 of the nodes are expected to be left
after a round, whatever the graph is like, so there are O(log nodes) rounds. What is left is small after a
few, and one task finishes it by scipy. At the end the rounds are undone, last to first, and every component
is named after its smallest node.

Bögeholz, Brand, Todor: In-database connected component analysis, ICDE 2020 (arXiv:1802.09478). GraphFrames
has it as `randomized_contraction`; why not GraphFrames itself: docs/decisions/0024.

No step brings the neighbours of a node together. A minimum is taken on the mappers first, and joins are
against tables with one row a node, so a node with millions of edges is rows that stream through a task.
Rounds are Parquet under a URL of the caller's: no lineage grows, a lost executor loses none of them, and
Spark plans the next round by real sizes (a checkpoint keeps the estimates of the plan it cuts off,
SPARK-39834, which multiply with every join until planning takes minutes).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from compactor.entity.components import components
from compactor.errors import InputError, UsageError
from compactor.spark.session import as_job_error

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EDGES_IN_ONE_TASK: Final = 1_000_000
"""One task takes 0.6 s and 120 MB for as many: less than the rounds it saves."""


@dataclass(frozen=True, slots=True)
class Round:
    """What a round did, to watch convergence by."""

    number: int
    """From 1; the task that finishes the rest is the last."""
    edges: int
    """Into the round."""
    edges_left: int
    in_one_task: bool
    seconds: float


def connected_components(
    edges: DataFrame,
    scratch_url: str,
    *,
    edges_in_one_task: int = EDGES_IN_ONE_TASK,
    seed: int = 0,
    on_round: Callable[[Round], None] = lambda _: None,
) -> DataFrame:
    """Rows `node bigint, component bigint`: each node of the edges once, the smallest of its component.

    edges: rows `left bigint, right bigint` in either direction; repeated ones and loops do no harm, and
        other columns are not read. It is evaluated once.
    scratch_url: a folder for the rounds and the result, which driver and executors reach (`s3a://`,
        `hdfs://`; a path with a local master). About four times the size of the edges as Parquet. What is
        returned is read from there, so remove it after that.
    edges_in_one_task: at most as many are finished by one task, at 200 bytes each. 0: none are.
    seed: of the orders drawn. It decides how many rounds there are, never the result.
    on_round: called on the driver after each round.

    Raises `UsageError` for edges of other columns, `InputError` for null in them, `JobError` if Spark fails.
    """
    _check(edges, edges_in_one_task)
    work = _Rounds(edges, scratch_url, seed, on_round)
    with as_job_error("connected components"):
        work.read()
        while work.edge_count > max(edges_in_one_task, 0):
            work.contract()
        return work.labelled()


def _check(edges: DataFrame, edges_in_one_task: int) -> None:
    found = {field.name: field.dataType.simpleString() for field in edges.schema.fields}
    for name in ("left", "right"):
        if found.get(name) != "bigint":
            raise UsageError(
                f"edges: column {name} is {found.get(name, 'missing')}; it has to be bigint "
                f"(columns are {', '.join(found) or 'none'})"
            )
    if edges_in_one_task < 0:
        raise UsageError(f"edges_in_one_task: {edges_in_one_task} is negative; 0 is for none")


class _Rounds:
    """The graph as contracted so far, and how each round mapped its nodes to the next one's."""

    def __init__(
        self, edges: DataFrame, scratch_url: str, seed: int, on_round: Callable[[Round], None]
    ) -> None:
        self.edge_count = 0
        self._edges = edges
        self._folder = f"{scratch_url.rstrip('/')}/components-{uuid.uuid4().hex}"
        self._seed = seed
        self._on_round = on_round
        self._representatives: list[DataFrame] = []

    def read(self) -> None:
        """Raises `InputError` for nulls. A loop is kept as the only sign of a node without other edges."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as fn

        nulls = fn.col("left").isNull() | fn.col("right").isNull()
        seen = Observation()
        read = self._edges.select("left", "right").observe(seen, fn.count_if(nulls).alias("nulls"))
        self._edges = self._kept(read, "edges-0")
        if seen.get["nulls"]:
            raise InputError(
                f"edges: null in left or right in {seen.get['nulls']:,} rows; leave such rows out"
            )
        self.edge_count = self._edges.count()

    def contract(self) -> None:
        """One round. The last node of a component by the round's order is nobody's representative, so
        there are fewer nodes after every round, whatever is drawn."""
        from pyspark.sql import functions as fn

        started = time.perf_counter()
        number = len(self._representatives) + 1
        first = self._kept(self._firsts(number), f"representatives-{number}")
        left = first.select(fn.col("node").alias("left"), fn.col("first").alias("l"))
        right = first.select(fn.col("node").alias("right"), fn.col("first").alias("r"))
        joined = self._edges.join(left, "left").join(right, "right").where("l <> r")
        ends = joined.select(fn.least("l", "r").alias("left"), fn.greatest("l", "r").alias("right"))
        self._representatives.append(first)
        self._edges = self._kept(ends.distinct(), f"edges-{number}")
        self._done(number, self._edges.count(), False, started)

    def labelled(self) -> DataFrame:
        """The rest finished in one task, the rounds undone, components named by their smallest nodes."""
        from pyspark.sql import functions as fn

        labels = self._finished()
        for mapping in reversed(self._representatives):
            later = labels.select(fn.col("node").alias("first"), fn.col("first").alias("last"))
            joined = mapping.join(later, "first", "left")
            labels = joined.select("node", fn.coalesce("last", "first").alias("first"))
        if not self._representatives:
            return labels.withColumnRenamed("first", "component")
        labels = self._kept(labels, "labels")
        smallest = labels.groupBy("first").agg(fn.min("node").alias("component"))
        return self._kept(labels.join(smallest, "first").select("node", "component"), "components")

    def _firsts(self, number: int) -> DataFrame:
        """Each node of the edges once, and the first of itself and its neighbours by the round's order.

        xxhash64 of a bigint is a permutation of all bigints, another after each salt: a strict order. A
        salt that is text is no part of the code Spark generates, so later rounds find it compiled.
        """
        from pyspark.sql import functions as fn

        salt = fn.lit(f"{self._seed}.{number}")

        def place(node: str) -> Column:
            return fn.xxhash64(salt, node)

        both = fn.expr("stack(2, left, right, right, left) as (node, other)")
        directed = self._edges.select(both)
        least = directed.groupBy("node").agg(
            fn.min_by("other", place("other")).alias("other"), fn.min(place("other")).alias("place")
        )
        itself = place("node") <= fn.col("place")
        return least.select(
            "node", fn.when(itself, fn.col("node")).otherwise(fn.col("other")).alias("first")
        )

    def _finished(self) -> DataFrame:
        started = time.perf_counter()
        rest = self._edges.coalesce(1).mapInArrow(_components_of, "node bigint, first bigint")
        number = len(self._representatives) + 1
        kept = self._kept(rest, f"representatives-{number}")
        if self.edge_count:
            self._done(number, 0, True, started)
        return kept

    def _done(self, number: int, edges_left: int, in_one_task: bool, started: float) -> None:
        seconds = time.perf_counter() - started
        before, self.edge_count = self.edge_count, edges_left
        self._on_round(Round(number, before, edges_left, in_one_task, seconds))

    def _kept(self, frame: DataFrame, name: str) -> DataFrame:
        """The same rows, read from a file."""
        url = f"{self._folder}/{name}"
        frame.write.parquet(url)
        return frame.sparkSession.read.schema(frame.schema).parquet(url)


def _components_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of all edges of the task: each node, and the smallest of its component."""
    table = pa.Table.from_batches(
        list(batches), pa.schema([("left", pa.int64()), ("right", pa.int64())])
    )
    ends = np.concatenate([table["left"].to_numpy(), table["right"].to_numpy()])
    nodes, numbers = np.unique(ends, return_inverse=True)
    smallest = components(len(nodes), numbers[: len(table)], numbers[len(table) :])
    yield from pa.table({"node": nodes, "first": nodes[smallest]}).to_batches(1 << 16)
