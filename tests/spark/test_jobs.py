"""The engine of Spark jobs: what tasks give, and what the driver hears of it; on a stand-in for Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pyarrow as pa
import pytest

from compactor.errors import InputError, JobError
from compactor.files.plain_text import UnwritableError
from compactor.spark.session import SparkOptions
from compactor.spark.shuffle.exchange import ByKeys, ByNumber, ByRange, Divider, splitters
from compactor.spark.shuffle.jobs import Jobs
from compactor.spark.shuffle.task import (
    SampledKeys,
    TaskInput,
    TaskOutput,
    TaskRows,
    TaskSummary,
    task_and_place,
)
from lsm_fragment.keys.sort_schema import parse_sort_schema
from tests.spark.stand_in import FakeSpark, as_session

SORT = parse_sort_schema("n")
SPARK = FakeSpark()


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    with ExitStack() as stack:
        yield Jobs(as_session(SPARK), SparkOptions(), 1 << 20, 8, stack)
    assert SPARK.kept == 0
    assert SPARK.conf == {"spark.master": "local[2]"}


def piece(number: int) -> TaskOutput:
    """Gives 100 rows by each of two feeds, by turns."""
    for start in range(0, 100, 10):
        for feed in (3, 5):
            ns = [feed * 1000 + number * 100 + n for n in range(start, start + 10)]
            batch = pa.RecordBatch.from_pydict({"n": ns, "to": [n % 3 for n in ns]})
            yield TaskRows(batch, feed)
            yield SampledKeys(batch, SORT, feed)
    yield TaskSummary({"pieces": 1})


@pytest.mark.parametrize("parts", [1, 3])
def test_each_task_gets_its_rows_by_rank_and_in_the_order_of_the_tasks_before(
    jobs: Jobs, parts: int
) -> None:
    done = jobs.run_pieces(4, piece)
    assert done.total("pieces") == 4
    assert {number: feed.rows for number, feed in done.feeds.items()} == {3: 400, 5: 400}
    dividers: list[Divider] = [
        ByKeys(("n",)),
        ByNumber("to"),
        ByRange(splitters(done.feeds[3].samples, SORT, parts), SORT),
    ]
    for divider in dividers:

        def look(part: int, given: TaskInput) -> TaskOutput:
            found: list[list[int]] = [[], []]
            for rank, batch in given:
                found[rank] += batch.column("n").to_pylist()
            yield TaskSummary({"part": part, "found": found})

        if parts == 1 and isinstance(divider, ByNumber):
            continue
        seen = jobs.run([done.flow(1, divider, 3), done.flow(0, divider, 5)], parts, look)
        found = [summary["found"] for summary in seen.summaries.values()]
        assert list(seen.summaries) == [summary["part"] for summary in seen.summaries.values()]
        for rank, feed in ((1, 3), (0, 5)):
            assert all(some[rank] == sorted(some[rank]) for some in found)
            every = sorted(n for some in found for n in some[rank])
            assert every == list(range(feed * 1000, feed * 1000 + 400))


def test_the_first_task_that_fails_is_the_one_that_is_told(jobs: Jobs) -> None:
    def fail(number: int) -> TaskOutput:
        yield TaskSummary({"number": number}, has_failed=number == 1)
        if number == 2:
            # Pipelines and entity merges know its base only.
            raise UnwritableError("no room for a map")

    done = jobs.run_pieces(3, fail)
    assert done.summaries == {0: {"number": 0}, 1: {"number": 1}}

    def fail_first(number: int) -> TaskOutput:
        yield from fail(2 - number)

    with pytest.raises(InputError) as error:
        jobs.run_pieces(3, fail_first)
    assert str(error.value) == "no room for a map"


def test_what_ended_spark_is_told_and_not_that_it_no_longer_answers() -> None:
    spark = FakeSpark()
    with pytest.raises(JobError, match="ran out of memory"), ExitStack() as stack:
        jobs = Jobs(as_session(spark), SparkOptions(), 1 << 20, 8, stack)
        jobs.run_pieces(1, piece)
        spark.end()
        raise JobError("ran out of memory")


def test_what_fails_in_the_end_while_spark_runs_is_told() -> None:
    with pytest.raises(AssertionError), ExitStack() as stack:
        jobs = Jobs(as_session(FakeSpark()), SparkOptions(), 1 << 20, 8, stack)
        done = jobs.run_pieces(1, piece)
        assert done.packets is not None
        done.packets.unpersist()  # what is not kept can't be given back once more


def test_parts_are_as_many_as_memory_needs_or_cores_are_worth(jobs: Jobs) -> None:
    assert [jobs.parts(size) for size in (0, 1 << 17, (1 << 17) + 1, 1 << 40)] == [1, 1, 2, 10_000]
    with ExitStack() as stack:
        roomy = Jobs(as_session(SPARK), SparkOptions(), 1 << 40, 8, stack)
        assert [roomy.parts(size << 20) for size in (3, 4, 8, 1000)] == [1, 1, 2, 2]
        chosen = Jobs(as_session(SPARK), SparkOptions(None, 7), 1 << 40, 8, stack)
        assert chosen.parts(0) == 7


def test_a_number_has_the_task_above_the_place() -> None:
    assert task_and_place((5 << 40) + 7) == (5, 7)
