"""A stand-in for Spark in this process: the DataFrame methods that pipelines use, on Arrow batches. Tasks run
twice, as speculation does it, and only the second attempt counts; functions are pickled, as Spark does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle

from compactor.predicate import parse_where
from compactor.predicate.tree import matching

Batches = Iterator[pa.RecordBatch]
_BATCH_ROWS = 3


class FakeSpark:
    def __init__(self, slots: int = 2, master: str = "local[2]") -> None:
        self.conf = FakeConf({"spark.master": master})
        self.sparkContext = FakeContext(slots)
        self.kept = 0
        """Frames that are persisted now."""

    def end(self) -> None:
        """Ends the JVM: nothing answers any more."""
        self.conf.is_lost = self.sparkContext.is_lost = True

    def range(
        self, start: int, end: int | None = None, _step: int = 1, parts: int = 1
    ) -> FakeFrame:
        numbers = list(range(start)) if end is None else list(range(start, end))
        assert parts in (1, len(numbers))
        return FakeFrame(self, [[pa.RecordBatch.from_pydict({"id": [n]})] for n in numbers])


class FakeContext:
    def __init__(self, slots: int) -> None:
        self.defaultParallelism = slots
        self.is_lost = False

    @property
    def _jsc(self) -> FakeContext:
        if self.is_lost:
            raise ConnectionRefusedError
        return self

    def sc(self) -> FakeContext:
        return self

    def isStopped(self) -> bool:  # noqa: N802
        return False


class FakeConf(dict[str, str]):
    is_lost = False

    def set(self, name: str, value: str) -> None:
        self[name] = value

    def unset(self, name: str) -> None:
        if self.is_lost:
            raise ConnectionRefusedError
        self.pop(name, None)


class FakeFrame:
    """Batches of each partition."""

    def __init__(self, spark: FakeSpark, partitions: Sequence[list[pa.RecordBatch]]) -> None:
        self.sparkSession = self._spark = spark
        self._partitions = partitions
        self._is_kept = False

    def mapInArrow(self, function: Callable[[Batches], Batches], _schema: str) -> FakeFrame:  # noqa: N802
        def run(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
            sent: Callable[[Batches], Batches] = cloudpickle.loads(cloudpickle.dumps(function))
            return list(sent(iter(batches)))

        for batches in self._partitions:
            run(batches)
        return FakeFrame(self._spark, [run(batches) for batches in self._partitions])

    def where(self, text: str) -> FakeFrame:
        def some(batch: pa.RecordBatch) -> pa.RecordBatch:
            arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
            return batch.filter(matching(parse_where(text, batch.schema), arrays, batch.num_rows))

        return self._each(lambda batches: [some(batch) for batch in batches])

    def persist(self) -> FakeFrame:
        self._is_kept = True
        self._spark.kept += 1
        return self

    def unpersist(self) -> None:
        if self._spark.conf.is_lost:
            raise ConnectionRefusedError
        assert self._is_kept
        self._is_kept = False
        self._spark.kept -= 1

    def unionAll(self, other: FakeFrame) -> FakeFrame:  # noqa: N802
        return FakeFrame(self._spark, [*self._partitions, *other._partitions])

    def repartitionById(self, parts: int, column: str) -> FakeFrame:  # noqa: N802
        """Rows of a partition come from others in any order: here in the reverse one."""
        sent: list[list[pa.RecordBatch]] = [[] for _ in range(parts)]
        for batches in reversed(self._partitions):
            for batch in batches:
                for row in range(batch.num_rows):
                    sent[batch.column(column)[row].as_py()].append(batch.slice(row, 1))
        return FakeFrame(self._spark, sent)

    def sortWithinPartitions(self, *names: str) -> FakeFrame:  # noqa: N802
        def in_order(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
            if not batches:
                return []
            table = pa.Table.from_batches(batches)
            order = pc.sort_indices(table, [(name, "ascending") for name in names])
            found: list[pa.RecordBatch] = table.take(order).to_batches(max_chunksize=_BATCH_ROWS)
            return found

        return self._each(in_order)

    def toArrow(self) -> pa.Table:  # noqa: N802
        return pa.Table.from_batches([batch for batches in self._partitions for batch in batches])

    def toLocalIterator(self) -> Iterator[dict[str, Any]]:  # noqa: N802
        for batches in self._partitions:
            for batch in batches:
                yield from batch.to_pylist()

    def _each(self, change: Callable[[list[pa.RecordBatch]], list[pa.RecordBatch]]) -> FakeFrame:
        return FakeFrame(self._spark, [change(batches) for batches in self._partitions])


def as_session(spark: FakeSpark) -> Any:
    return spark
