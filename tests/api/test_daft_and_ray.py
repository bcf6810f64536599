"""Daft and Ray read tables in tasks: the rows that they would keep themselves, and no more of the table than
they need."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, reject, settings

from compactor import IngestOptions, RowKind, RowPolicy, Table
from compactor.api.divided import DividedTable
from compactor.errors import UsageError
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from tests.api.test_other_engines import (
    COMPARISONS,
    SCHEMA,
    SMALL_GROUPS,
    Condition,
    conditions,
    expected,
    table,
    with_operators,
)
from tests.support.oracle import ordered_rows
from tests.support.wording import refuses

__all__ = ["table"]  # the fixture

daft = pytest.importorskip("daft", reason="Daft is installed on Linux only")
ray = pytest.importorskip("ray", reason="Ray is installed on Linux only")
from daft import col as daft_col  # noqa: E402
from daft import lit as daft_lit  # noqa: E402
from ray.data.expressions import col as ray_col  # noqa: E402
from ray.data.expressions import lit as ray_lit  # noqa: E402


def with_daft(condition: Condition) -> Any:
    return with_operators(condition, _simple_with_daft)


def _simple_with_daft(condition: Condition) -> Any:
    match condition:
        case "compare", name, operator, value:
            return COMPARISONS[operator](daft_col(name), daft_lit(value))
        case "null", name:
            return daft_col(name).is_null()
        case "not null", name:
            return daft_col(name).not_null()
        case "in", name, values:
            return daft_col(name).is_in(values)
        case "begins", text:
            return daft_col("text").startswith(text)
    raise AssertionError(condition)


def with_ray(condition: Condition) -> Any:
    return with_operators(condition, _simple_with_ray)


def _simple_with_ray(condition: Condition) -> Any:
    match condition:
        case "compare", name, operator, value:
            return COMPARISONS[operator](ray_col(name), ray_lit(value))
        case "null", name:
            return ray_col(name).is_null()
    raise AssertionError(condition)


def same(found: pa.Table, wanted: pa.Table) -> bool:
    """Whether two tables have the same rows in any order; NaN equals itself."""
    ours, theirs = (
        ordered_rows(given.select(SCHEMA.names).cast(SCHEMA), "id") for given in (found, wanted)
    )
    return ours == theirs


def of_daft(frame: Any, filter: Any) -> list[int]:
    """Returns the ids of rows. Passes over the rare conditions at which Daft's own optimizer panics."""
    try:
        return sorted(frame.where(filter).select("id").to_pydict()["id"])
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            reject()
        raise


@settings(max_examples=60, deadline=None)
@given(condition=conditions)
def test_daft_keeps_the_rows_that_it_keeps_of_arrow(table: Table, condition: Condition) -> None:
    filter = with_daft(condition)
    wanted = of_daft(daft.from_arrow(expected()), filter)
    assert of_daft(table.to_daft(), filter) == wanted


def test_daft_keeps_its_own_rows_where_its_comparisons_are_not_ours(tmp_path: Path) -> None:
    """JSON as text, zeros of both signs, times cut to the unit of the other side, numbers beyond int64."""
    texts = pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a":1}', "2", None, "3"]))
    rows = pa.table(
        {
            "id": range(4),
            "json": texts,
            "x": [0.0, -0.0, 1.0, None],
            "fine": pa.array([0, 1, 1000, None], pa.timestamp("ns")),
            "big": pa.array([2**64 - 1, 1, None, 0], pa.uint64()),
            "inner": [{"a": 1}, {"a": 2}, None, {"a": None}],
        }
    )
    frame = Table.create(tmp_path / "t", rows, "id").to_daft()
    plain = daft.from_arrow(rows.set_column(1, "json", texts.storage))
    col = daft_col
    for condition in (
        col("json") == "2",
        ~(col("json") != "2"),
        col("json") >= "2",
        col("x") != 0.0,
        col("x") != -0.0,
        col("x") > -0.0,
        col("x") < 0.0,
        col("fine") == datetime(1970, 1, 1),
        col("big") == 2**64 - 1,
        col("inner")["a"] == 1,
        col("inner")["a"].is_null(),
    ):
        assert of_daft(frame, condition) == of_daft(plain, condition), condition


def test_daft_reads_all_columns_some_rows_and_counts(table: Table) -> None:
    frame = table.to_daft()
    assert same(frame.to_arrow(), expected())
    assert frame.count_rows() == len(expected())
    assert len(frame.where(daft_col("n") > 0).limit(3).to_pydict()["text"]) == 3
    counted = frame.groupby("ok").agg(daft_col("id").count()).to_pydict()
    assert sum(counted["id"]) == len(expected())


def test_tasks_leave_out_what_an_engine_does_not_want(table: Table) -> None:
    """And say the same after they were pickled, when the table has gone on."""
    divided = DividedTable(table.url, CommitLog(open_store(table.url)).current())
    few = divided.tasks(["id", "n"], ds.field("id") < 60, 1)
    found = pa.Table.from_batches(
        [batch for rows in pickle.loads(pickle.dumps(few)) for batch in rows.batches()]
    )
    assert found.column_names == ["id", "n"]
    assert sorted(found["id"].to_pylist()) == [id for id in range(60) if id % 7 != 3]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        num_cpus=1,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=100 << 20,
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


def blocks(dataset: Any) -> pa.Table:
    return pa.concat_tables(ray.get(dataset.to_arrow_refs()))


@pytest.mark.long
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    "condition",
    [
        ("compare", "n", ">", 0),
        ("not", ("compare", "x", ">", 1.0)),
        ("or", ("compare", "text", "=", "it's"), ("null", "big")),
        ("and", ("compare", "n", "<=", 1), ("compare", "text", "<>", "a")),
        ("compare", "ok", "=", True),
    ],
)
def test_ray_keeps_the_rows_that_it_keeps_of_arrow(table: Table, condition: Condition) -> None:
    filter = with_ray(condition)
    wanted = ray.data.from_arrow(expected()).filter(expr=filter)
    found = table.to_ray().filter(expr=filter)
    assert sorted([row["id"] for row in found.select_columns(["id"]).take_all()]) == sorted(
        [row["id"] for row in wanted.take_all()]
    )
    assert found.count() == wanted.count()


@pytest.mark.long
@pytest.mark.usefixtures("cluster")
def test_ray_reads_all_columns_some_rows_and_counts(table: Table, tmp_path: Path) -> None:
    dataset = table.to_ray()
    assert same(blocks(dataset), expected())
    assert dataset.count() == len(expected())
    assert len(dataset.limit(3).take_all()) == 3
    assert dataset.schema().base_schema == SCHEMA
    empty = Table.create(tmp_path / "empty", SCHEMA.empty_table(), "id").to_ray()
    assert empty.count() == 0
    assert empty.schema().names == SCHEMA.names


@pytest.mark.long
@pytest.mark.usefixtures("cluster")
def test_rows_of_one_key_are_merged_for_both(tmp_path: Path) -> None:
    options = IngestOptions(rows=RowPolicy(RowKind.LAST), writer=SMALL_GROUPS.writer)
    made = Table.create(tmp_path / "t", expected(), "id", options)
    made.append(expected().slice(0, 100))
    assert made.to_daft().count_rows() == made.to_ray().count() == len(expected())
    assert same(made.to_daft().to_arrow(), expected())
    assert same(blocks(made.to_ray()), expected())


def test_a_missing_engine_is_named_with_its_package(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("daft", "ray.data"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("daft_frame", "ray_dataset"):
        monkeypatch.delitem(sys.modules, f"compactor.api.{name}", raising=False)
    with refuses(UsageError):
        table.to_daft()
    with refuses(UsageError):
        table.to_ray()


def test_a_type_that_daft_lacks_is_named(tmp_path: Path) -> None:
    times = pa.table({"id": [1], "at": pa.array([1], pa.time32("s"))})
    with refuses(UsageError):
        Table.create(tmp_path / "t", times, "id").to_daft()


def test_columns_come_in_the_types_in_which_they_are_stored(tmp_path: Path) -> None:
    texts = ["a", None, "a"]
    coded = pa.array(texts).dictionary_encode()
    rows = pa.table({"id": [1, 2, 3], "coded": coded, "view": pa.array(texts, pa.string_view())})
    frame = Table.create(tmp_path / "t", rows, "id").to_daft()
    assert frame.sort("id").to_pydict() == {"id": [1, 2, 3], "coded": texts, "view": texts}
