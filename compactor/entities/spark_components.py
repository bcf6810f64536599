"""Finds connected components of a graph too large for one process: large-star and small-star on DataFrames.

An edge is kept as a node and its parent, a smaller node. Each round has three steps:

- large-star replaces each parent by its own smallest parent, where it has one;
- small-star makes the smallest of a node's parents the parent of its other parents and of the node;
- leaves are set aside: nodes with one parent that are no node's parent. Neither star needs them: no node ever
  gets a leaf as its parent, so the other nodes go through the same rounds without them. Nodes that got
  another parent from small-star stay for one more round, and their parents are not counted.

In the end the smallest node of a component is the only parent of every other node: all are leaves and no edge
is left, which shows convergence. A chain of 100,000 links takes 16 rounds. After a few rounds little is left,
and one task finishes it with scipy. Then the leaves, last to first, get the component of their parent.

Kiveris, Lattanzi, Mirrokni, Rastogi, Vassilvitskii: Connected components in MapReduce and beyond, SoCC
2014. Leaves set aside: Lulli et al., Fast connected components computation in large graphs by vertex
pruning, TPDS 2017; GraphFrames does so too. Why not GraphFrames itself: docs/decisions/0024.

No step brings all neighbours of a node together. Mappers take minima first, and joins are with tables of one
row per node, so the edges of a node with millions of them stream through a task, or through several if
Spark's adaptive execution finds them too many. Rounds are Parquet under a URL that the caller gives: no
lineage grows, a lost executor loses none of them, and Spark plans the next step by real sizes. A checkpoint
would keep the estimates of the plan it cuts off (SPARK-39834), which multiply with every join until planning
takes minutes.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa

from compactor.common.counts import counted
from compactor.entities.components import components
from compactor.errors import InputError, UsageError
from compactor.spark.session import as_job_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EDGES_IN_ONE_TASK: Final = 1_000_000
"""Edges that one task finishes: it takes 0.6 s and 120 MB for them, less than the rounds it saves."""

_LABEL: Final = "node bigint, component bigint"


@dataclass(frozen=True, slots=True)
class Round:
    """The figures of a round, to watch convergence."""

    number: int
    """Number of the round, from 1; the task that finishes the rest is the last round."""
    edges: int
    """Edges at the beginning of the round, without loops."""
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
    """Returns rows `node bigint, component bigint`: each node of the edges once, with the smallest node of
    its component.

    edges: rows `left bigint, right bigint` in either direction; duplicates and loops do no harm, and other
        columns are not read. The frame is evaluated once.
    scratch_url: a folder for the rounds and the result, which Spark's driver and executors reach (`s3a://`,
        `hdfs://`; a path with a local master). The result is read from there, so remove the folder
        afterwards.
    edges_in_one_task: the most edges that one task finishes, at 200 bytes each; 0 for none.
    on_round: called on Spark's driver after each round.

    Raises `UsageError` for edges of other columns, `InputError` for null in them, `JobError` if Spark fails.
    """
    _check(edges, edges_in_one_task)
    work = _Rounds(edges, scratch_url, on_round)
    with as_job_error("connected components"):
        work.read()
        while work.edge_count > edges_in_one_task:
            work.run()
        return work.labelled()


class Connector(Protocol):
    """A way to find the connected components of a graph in DataFrames."""

    def components(
        self, edges: DataFrame, scratch_url: str, on_round: Callable[[Round], None]
    ) -> DataFrame:
        """Returns rows node, component: the same component for all nodes that are connected.

        edges: columns left and right.
        """

    def larger_than(self, labels: DataFrame, most: int) -> tuple[int, DataFrame] | None:
        """Returns the number of nodes of the largest component, and the labels of all that have as many; None
        if no component has more than `most`."""


class SparkConnector:
    """Finds connected components by `connected_components`."""

    def components(
        self, edges: DataFrame, scratch_url: str, on_round: Callable[[Round], None]
    ) -> DataFrame:
        return connected_components(edges, scratch_url, on_round=on_round)

    def larger_than(self, labels: DataFrame, most: int) -> tuple[int, DataFrame] | None:
        from pyspark.sql import functions as fn

        sizes = labels.groupBy("component").count()
        [(found,)] = sizes.agg(fn.max("count")).collect()
        if found is None or found <= most:
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
    """The edges that are left, and the leaves that each round set aside."""

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

        Raises `InputError` for nulls. Keeps loops, which may be the only edge of a node.
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
        parted = self._kept(_leaves_told(small), f"edges-{number}", "leaf")
        self._leaves.append(parted.where("leaf").drop("leaf"))
        self._edges = parted.where("not leaf").drop("leaf")
        self._done(number, self._edges.count(), False, started)

    def labelled(self) -> DataFrame:
        """Finishes the rest in one task, then labels leaves last to first, then the smallest nodes."""
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
        """Reads each node of the folders and its component. The smallest nodes of components are left out."""
        session = self._edges.sparkSession
        if not folders:
            return session.createDataFrame([], _LABEL)
        return session.read.schema(_LABEL).parquet(*(f"{self._folder}/{each}" for each in folders))

    def _kept(self, frame: DataFrame, name: str, parted_by: str | None = None) -> DataFrame:
        """Writes rows to files and returns them as read from there, partitioned by `parted_by`."""
        url = f"{self._folder}/{name}"
        frame.write.parquet(url, partitionBy=parted_by)
        return frame.sparkSession.read.schema(frame.schema).parquet(url)


def _min_parents(edges: DataFrame) -> DataFrame:
    """Returns rows `node, least`: each node that has a parent once, with its smallest parent."""
    from pyspark.sql import functions as fn

    return edges.groupBy("node").agg(fn.min("parent").alias("least"))


def _large_star(edges: DataFrame) -> DataFrame:
    """Replaces parents by their smallest parents.

    A node's smallest neighbour is its smallest parent, if it has one, so one direction of edges is enough.
    """
    from pyspark.sql import functions as fn

    of_parents = _min_parents(edges).withColumnRenamed("node", "parent")
    joined = edges.join(of_parents, "parent", "left")
    return joined.select("node", fn.coalesce("least", "parent").alias("parent")).distinct()


def _small_star(edges: DataFrame) -> DataFrame:
    """Gives a node's other parents its smallest parent. Edges must be distinct; there are as many rows as
    edges.

    One row of each node, its edge to the smallest parent, is marked `least`.
    """
    from pyspark.sql import functions as fn

    is_least = fn.col("parent") == fn.col("least")
    node = fn.when(is_least, fn.col("node")).otherwise(fn.col("parent"))
    return edges.join(_min_parents(edges), "node").select(
        node.alias("node"), fn.col("least").alias("parent"), is_least.alias("least")
    )


def _leaves_told(edges: DataFrame) -> DataFrame:
    """Returns the distinct edges after `_small_star`, and whether the node is a leaf that may be set aside.

    Each node has one row that is `least`; nodes of other rows stay.
    """
    from pyspark.sql import functions as fn

    least = edges.where("least").select("node", "parent")
    others = edges.where("not least").select("node", "parent").distinct()
    inner = least.select(fn.col("parent").alias("node")).union(others.select("node")).distinct()
    told = least.join(inner.withColumn("inner", fn.lit(True)), "node", "left")
    return told.select("node", "parent", fn.isnull("inner").alias("leaf")).union(
        others.withColumn("leaf", fn.lit(False))
    )


def _components_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields each node but the smallest of its component, with that smallest node. Takes all edges, at least
    one."""
    table = pa.Table.from_batches(batches)
    ends = np.concatenate([table["node"].to_numpy(), table["parent"].to_numpy()])
    nodes, numbers = np.unique(ends, return_inverse=True)
    smallest = components(len(nodes), numbers[: len(table)], numbers[len(table) :])
    others = np.flatnonzero(smallest != np.arange(len(nodes)))
    labels = {"node": nodes[others], "component": nodes[smallest[others]]}
    yield from pa.table(labels).to_batches(1 << 16)
