"""Finds connected components of graphs too large for one process: large-star and small-star on DataFrames.

Each edge is stored as a node and a smaller parent. A round has three steps:

- large-star replaces each parent by its own smallest parent, if it has one;
- small-star makes a node's smallest parent the parent of its other parents and of the node;
- pruning sets leaves aside: nodes with one parent and no child. Stars never make a leaf a parent, so the
  other nodes need no leaves. A node that small-star has just given another parent stays for one more round,
  and does not count as a child.

The algorithm has converged when no edge is left: each component's smallest node has become the only parent of
all others, which are leaves. A chain of 100,000 links takes 16 rounds. After a few rounds little is left,
which one task finishes by union-find. Then the leaves, last to first, get the component of their parent.

Kiveris, Lattanzi, Mirrokni, Rastogi, Vassilvitskii: Connected components in MapReduce and beyond, SoCC 2014.
Pruning: Lulli et al., Fast connected components computation in large graphs by vertex pruning, TPDS 2017;
GraphFrames prunes too. Why not GraphFrames itself: docs/decisions/0024.

No step collects all neighbours of a node. Mappers compute minima first, and joins are with tables of one row
per node, so the edges of a node of high degree stream through a task, or through several if Spark's adaptive
execution splits them. Rounds are stored as Parquet under a URL that the caller gives: lineage stays short, a
lost executor loses none, and Spark plans each step by real sizes. A checkpoint would keep the estimates of
the plan it truncates (SPARK-39834), which multiply with every join until planning takes minutes.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import pyarrow as pa
from msgspec import Struct

from compactor.common.counts import counted
from compactor.entities.components import stars
from compactor.errors import InputError, UsageError
from compactor.spark.session import as_job_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EDGES_IN_ONE_TASK: Final = 1_000_000
"""Finish at most this many edges in one task: 0.5 s and 115 MB, less than the rounds it saves."""

_LABEL: Final = "node bigint, component bigint"


class Round(Struct, frozen=True):
    """The figures of a round."""

    number: int
    """Counted from 1; the task that finishes the rest is the last round."""
    edges: int
    """Edges at the start of the round, without loops."""
    edges_left: int
    in_one_task: bool
    seconds: float


def connected_components(
    edges: DataFrame,
    scratch_url: str,
    *,
    edges_in_one_task: int = EDGES_IN_ONE_TASK,
    on_round: Callable[[Round], None] = lambda _: None,
) -> DataFrame:
    """Returns rows `node bigint, component bigint`: each node once, with the smallest node of its component.

    edges: rows `left bigint, right bigint` in either direction; may contain duplicates, loops and other
        columns. The frame is evaluated once.
    scratch_url: folder for the rounds and the result, reachable from Spark's driver and executors (`s3a://`,
        `hdfs://`; a path with a local master). The result is read from it, so remove it only afterwards.
    edges_in_one_task: maximum edges that one task finishes, at 115 bytes each; 0 for none.
    on_round: called on Spark's driver after each round.

    Raises `UsageError` for wrong columns, `InputError` for nulls, `JobError` if Spark fails.
    """
    _check(edges, edges_in_one_task)
    work = _Rounds(edges, scratch_url, on_round)
    with as_job_error("connected components"):
        work.read()
        while work.edge_count > edges_in_one_task:
            work.run()
        return work.labelled()


@runtime_checkable
class Connector(Protocol):
    """A way to find connected components in DataFrames."""

    def components(
        self, edges: DataFrame, scratch_url: str, on_round: Callable[[Round], None]
    ) -> DataFrame:
        """Returns rows node, component: connected nodes have the same component.

        edges: columns left and right.
        """

    def larger_than(self, labels: DataFrame, max_nodes: int) -> tuple[int, DataFrame] | None:
        """Returns the node count of the largest components, and their labels; None if none exceeds
        `max_nodes`."""


class SparkConnector:
    """Finds connected components by `connected_components`."""

    def components(
        self, edges: DataFrame, scratch_url: str, on_round: Callable[[Round], None]
    ) -> DataFrame:
        return connected_components(edges, scratch_url, on_round=on_round)

    def larger_than(self, labels: DataFrame, max_nodes: int) -> tuple[int, DataFrame] | None:
        from pyspark.sql import functions as fn

        sizes = labels.groupBy("component").count()
        [(found,)] = sizes.agg(fn.max("count")).collect()
        if found is None or found <= max_nodes:
            return None
        largest = labels.join(sizes.where(fn.col("count") == found), "component")
        return found, largest.select("node", "component")


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
    """The remaining edges, and the leaves that each round pruned."""

    def __init__(
        self, edges: DataFrame, scratch_url: str, on_round: Callable[[Round], None]
    ) -> None:
        self.edge_count = 0
        self._edges = edges
        self._loops = edges.limit(0)
        self._folder = f"{scratch_url.rstrip('/')}/components-{uuid.uuid4().hex}"
        self._on_round = on_round
        self._leaves: list[DataFrame] = []

    def read(self) -> None:
        """Reads the edges.

        Raises `InputError` for nulls. Keeps loops, which may be a node's only edge.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as fn

        nulls = fn.col("left").isNull() | fn.col("right").isNull()
        seen = Observation()
        read = self._edges.observe(seen, fn.count_if(nulls).alias("nulls")).select(
            fn.greatest("left", "right").alias("node"), fn.least("left", "right").alias("parent")
        )
        rows = self._kept(read, "edges-0")
        if seen.get["nulls"]:
            raise InputError(
                f"edges: null in left or right in {counted(seen.get['nulls'], 'row')}; leave such rows out"
            )
        self._edges = rows.where("node <> parent")
        self._loops = rows.where("node = parent")
        self.edge_count = self._edges.count()

    def run(self) -> None:
        """Runs one round."""
        started = time.perf_counter()
        number = len(self._leaves) + 1
        large = self._kept(_large_star(self._edges), f"large-star-{number}")
        small = self._kept(_small_star(large), f"small-star-{number}")
        parted = self._kept(_with_leaf_flags(small), f"edges-{number}", "leaf")
        self._leaves.append(parted.where("leaf").drop("leaf"))
        self._edges = parted.where("not leaf").drop("leaf")
        self._done(number, self._edges.count(), False, started)

    def labelled(self) -> DataFrame:
        """Finishes the remaining edges in one task, then labels the leaves, last to first, then the smallest
        nodes."""
        from pyspark.sql import functions as fn

        folders = self._finished()
        for number in range(len(self._leaves), 0, -1):
            later = self._labels(folders).toDF("parent", "component")
            found = self._leaves[number - 1].join(later, "parent", "left")
            named = found.select("node", fn.coalesce("component", "parent").alias("component"))
            self._kept(named, f"labels-{number}")
            folders.append(f"labels-{number}")
        labels = self._labels(folders)
        lone = self._loops.select("node").join(labels, "node", "left_anti")
        smallest = labels.select("component").union(lone).distinct()
        self._kept(smallest.selectExpr("component as node", "component"), "smallest")
        return self._labels([*folders, "smallest"])

    def _finished(self) -> list[str]:
        if not self.edge_count:
            return []
        started = time.perf_counter()
        number = len(self._leaves) + 1
        rest = self._edges.coalesce(1).mapInArrow(_components_of, _LABEL)
        self._kept(rest, f"labels-{number}")
        self._done(number, 0, True, started)
        return [f"labels-{number}"]

    def _done(self, number: int, edges_left: int, in_one_task: bool, started: float) -> None:
        seconds = time.perf_counter() - started
        before, self.edge_count = self.edge_count, edges_left
        self._on_round(Round(number, before, edges_left, in_one_task, seconds))

    def _labels(self, folders: list[str]) -> DataFrame:
        """Reads the nodes of the folders with their components, without each component's smallest node."""
        session = self._edges.sparkSession
        if not folders:
            return session.createDataFrame([], _LABEL)
        return session.read.schema(_LABEL).parquet(*(f"{self._folder}/{each}" for each in folders))

    def _kept(self, frame: DataFrame, name: str, parted_by: str | None = None) -> DataFrame:
        """Writes rows to files and returns them as read back, partitioned by `parted_by`."""
        url = f"{self._folder}/{name}"
        frame.write.parquet(url, partitionBy=parted_by)
        return frame.sparkSession.read.schema(frame.schema).parquet(url)


def _min_parents(edges: DataFrame) -> DataFrame:
    """Returns rows `node, least`: each node that has a parent, with its smallest parent."""
    from pyspark.sql import functions as fn

    return edges.groupBy("node").agg(fn.min("parent").alias("least"))


def _large_star(edges: DataFrame) -> DataFrame:
    """Replaces parents by their smallest parents.

    A node's smallest neighbour is its smallest parent, if any, so one edge direction is enough.
    """
    from pyspark.sql import functions as fn

    of_parents = _min_parents(edges).withColumnRenamed("node", "parent")
    joined = edges.join(of_parents, "parent", "left")
    return joined.select("node", fn.coalesce("least", "parent").alias("parent")).distinct()


def _small_star(edges: DataFrame) -> DataFrame:
    """Makes a node's smallest parent the parent of its other parents. Edges must be distinct; their number
    stays.

    Marks one row per node as `least`: the edge to its smallest parent.
    """
    from pyspark.sql import functions as fn

    is_least = fn.col("parent") == fn.col("least")
    node = fn.when(is_least, fn.col("node")).otherwise(fn.col("parent"))
    return edges.join(_min_parents(edges), "node").select(
        node.alias("node"), fn.col("least").alias("parent"), is_least.alias("least")
    )


def _with_leaf_flags(edges: DataFrame) -> DataFrame:
    """Returns the distinct edges after `_small_star`, and whether the node is a prunable leaf.

    Each node has one `least` row; nodes of other rows stay.
    """
    from pyspark.sql import functions as fn

    least = edges.where("least").select("node", "parent")
    others = edges.where("not least").select("node", "parent").distinct()
    inner = least.select(fn.col("parent").alias("node")).union(others.select("node")).distinct()
    flagged = least.join(inner.withColumn("inner", fn.lit(True)), "node", "left")
    return flagged.select("node", "parent", fn.isnull("inner").alias("leaf")).union(
        others.withColumn("leaf", fn.lit(False))
    )


def _components_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields each node with the smallest of its component, without that node itself. Takes all edges, at
    least one."""
    table = pa.Table.from_batches(batches)
    component, node = stars(table["node"].to_numpy(), table["parent"].to_numpy())
    yield from pa.table({"node": node, "component": component}).to_batches(1 << 16)
