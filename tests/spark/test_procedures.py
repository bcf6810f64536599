"""Table functions of SQL restore, undo, tag and untag once for each query, however often Spark runs them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import LongType, StringType
from pyspark.sql.udtf import AnalyzeArgument

from compactor import Policy, Strategy, Table
from compactor.errors import (
    CommitConflictError,
    ConfigError,
    TableNotFoundError,
    UsageError,
    VersionNotFoundError,
)
from compactor.spark import register
from compactor.spark.procedures import PROCEDURES
from tests.spark.test_data_source_write import found, numbers
from tests.support.wording import refuses

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A table of two versions that overlap."""
    table = Table.create(tmp_path / "t", numbers(0), "n")
    table.append(numbers(3))
    return table.url


def _argument(value: Any) -> AnalyzeArgument:
    kind = LongType() if isinstance(value, int) else StringType()
    return AnalyzeArgument(kind, value, isTable=False, isConstantExpression=True)


def analysed(name: str, *given: Any, **more: Any) -> Callable[[], list[tuple[Any, ...]]]:
    """Analyses a call as Spark does, and returns a function that runs its task."""
    procedure: Any = PROCEDURES[name]
    planned = procedure.analyze(
        *map(_argument, given), **{name: _argument(value) for name, value in more.items()}
    )
    sent = pickle.dumps(planned)
    return lambda: list(procedure(pickle.loads(sent)).eval(*given, **more))


def run_twice(name: str, *given: Any, **more: Any) -> list[tuple[Any, ...]]:
    """Runs a call whose task Spark repeats, and asserts that the second run changes nothing."""
    run = analysed(name, *given, **more)
    rows = run()
    version = Table.open(given[0]).version
    assert run() == rows
    assert Table.open(given[0]).version == version
    return rows


def test_a_restore_takes_place_once(url: str) -> None:
    assert run_twice("fragments_restore", url, version=1) == [(3, 1, 6)]
    assert found(url) == list(range(6))


def test_a_restore_names_its_version_by_a_tag_or_a_time(url: str) -> None:
    Table.open(url, version=1).tag("first")
    assert run_twice("fragments_restore", url, tag="first") == [(4, 1, 6)]
    assert analysed("fragments_restore", url, as_of="2999-01-01")() == [(4, 4, 6)]


def test_a_query_that_is_run_again_takes_no_later_rows_away(url: str) -> None:
    again = analysed("fragments_restore", url, version=1)
    again()
    Table.open(url).append(numbers(50))
    with refuses(CommitConflictError):
        again()
    assert found(url) == [*range(6), *range(50, 56)]


def test_an_undo_takes_place_once(url: str) -> None:
    table = Table.open(url)
    table.compact(policy=Policy(strategy=Strategy.FULL))
    [entry] = table._snapshot.fragments.all()
    [row] = run_twice("fragments_undo", url, entry.run)
    assert row[1:] == (2, 1)
    with refuses(UsageError, "'nothing'"):
        analysed("fragments_undo", url, "nothing")()


def test_tags_are_set_and_ended_once(url: str) -> None:
    assert run_twice("fragments_tag", url, "old", version=1) == [("old", 1)]
    assert run_twice("fragments_tag", url, "now") == [("now", 3)]
    with refuses(UsageError, "'old'"):
        analysed("fragments_tag", url, "old", version=2)()
    assert run_twice("fragments_tag", url, "old", version=2, move=True) == [("old", 2)]
    assert run_twice("fragments_untag", url, "old") == [("old", 2)]
    with refuses(VersionNotFoundError):
        analysed("fragments_untag", url, "old")()


def test_mistakes_are_found_before_a_task_runs(url: str, tmp_path: Path) -> None:
    with refuses(UsageError, "version, as_of or tag"):
        analysed("fragments_restore", url)
    with refuses(ConfigError, "give one of them"):
        analysed("fragments_restore", url, version=1, tag="a")
    with refuses(VersionNotFoundError):
        analysed("fragments_restore", url, version=99)
    with refuses(TableNotFoundError):
        analysed("fragments_untag", str(tmp_path / "nothing"), "a")
    varying = AnalyzeArgument(StringType(), None, isTable=False, isConstantExpression=False)
    with refuses(UsageError, "constant"):
        PROCEDURES["fragments_tag"].analyze(_argument(url), varying)  # type: ignore[attr-defined]


@pytest.mark.spark
def test_spark_runs_them_by_sql(spark: SparkSession, url: str) -> None:
    register(spark)
    tagged = spark.sql(f"SELECT * FROM fragments_tag('{url}', 'first', version => 1)").collect()
    assert [tuple(row) for row in tagged] == [("first", 1)]
    restoring = spark.sql(f"SELECT rows FROM fragments_restore('{url}', tag => 'first')")
    assert [restoring.collect(), restoring.collect()] == [[(6,)], [(6,)]]
    assert found(url) == list(range(6))
    assert Table.open(url).version == 4
    ended = spark.sql(f"SELECT version FROM fragments_untag('{url}', 'first')").collect()
    assert [tuple(row) for row in ended] == [(1,)]
    with pytest.raises(Exception, match="version, as_of or tag"):
        spark.sql(f"SELECT * FROM fragments_restore('{url}')").collect()
