"""Spark reads tables as streams: from table to table each row once, though queries die and forget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from compactor import Policy, Strategy, Table
from compactor.spark import register
from tests.spark.test_data_source import last_line
from tests.support.wording import says

pytestmark = pytest.mark.spark

FULL = Policy(strategy=Strategy.FULL)


def numbers(first: int, count: int = 5) -> pa.Table:
    return pa.table({"n": pa.array(range(first, first + count), pa.int64())})


class Copy:
    """A query from one table to another, restarted as often as it is run."""

    def __init__(self, spark: SparkSession, place: Path, **options: str) -> None:
        register(spark)
        self.spark = spark
        self.place = place
        self.options = options
        self.source = Table.create(f"{place}/from", numbers(0), sort_by="n")
        self.target = f"{place}/to"

    def run(self, change: Callable[[DataFrame], DataFrame] = lambda rows: rows) -> None:
        """Copies what is there."""
        read = self.spark.readStream.format("fragments").options(**self.options)
        rows = change(read.load(self.source.url))
        write = rows.writeStream.format("fragments").option("sort_by", "n")
        write = write.option("checkpointLocation", f"{self.place}/checkpoint")
        write.trigger(availableNow=True).start(self.target).awaitTermination()

    def forget_commit(self, batch: int) -> None:
        """As if Spark had been killed between the commit of the table and its own note of it."""
        for name in (str(batch), f".{batch}.crc"):
            (self.place / "checkpoint/commits" / name).unlink()

    def rows(self) -> list[int]:
        found: list[int] = Table.open(self.target).scan().to_table()["n"].to_pylist()
        return sorted(found)

    @property
    def batches(self) -> list[int]:
        """Those that Spark has noted as committed."""
        noted = (self.place / "checkpoint/commits").glob("[0-9]*")
        return sorted(int(path.name) for path in noted)


def test_rows_go_from_table_to_table_once_though_tasks_fail_and_commits_are_forgotten(
    spark: SparkSession, tmp_path: Path
) -> None:
    copy = Copy(spark, tmp_path, max_bytes_per_trigger="1", reader="copy")
    copy.source.append(numbers(5))
    copy.run()
    assert (copy.rows(), copy.batches) == (list(range(10)), [0, 1])
    version = Table.open(copy.target).version
    copy.source.append(numbers(10))
    copy.source.compact(policy=FULL)
    copy.source.vacuum(grace_seconds=0, retain_seconds=0)
    copy.forget_commit(1)
    once = tmp_path / "once"
    once.touch()

    def failing(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            if 10 in batch.column("n").to_pylist() and once.exists():
                once.unlink()
                raise ValueError("the task fails")
            yield batch

    with pytest.raises(PySparkException, match="the task fails"):
        copy.run(lambda rows: rows.mapInArrow(failing, rows.schema))
    assert (copy.rows(), copy.batches) == (list(range(10)), [0, 1])
    assert Table.open(copy.target).version == version, "batch 1 is in the table once"
    copy.run()
    assert (copy.rows(), Table.open(copy.target).version) == (list(range(15)), version + 1)
    copy.source.refresh()
    [tag] = copy.source.tags().to_pylist()
    assert tag["name"] == "copy"


def test_changes_go_to_a_folder_for_each_batch_and_rows_that_go_end_a_stream_of_appended_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    copy = Copy(spark, tmp_path)
    copy.run()
    copy.source.delete("n = 3")
    with pytest.raises(PySparkException) as caught:
        copy.run()
    says(last_line(caught.value))
    found: dict[int, list[tuple[int, str, int]]] = {}

    def keep(rows: DataFrame, batch: int) -> None:
        found[batch] = sorted(tuple(row) for row in rows.collect())

    read = spark.readStream.format("fragments").options(changes="true", since="0")
    write = read.load(copy.source.url).writeStream.foreachBatch(keep)
    write = write.option("checkpointLocation", f"{tmp_path}/folders")
    write.trigger(availableNow=True).start().awaitTermination()
    changes = [(n, "insert", 1) for n in range(5)]
    assert found == {0: sorted([*changes, (3, "delete", 2)])}
