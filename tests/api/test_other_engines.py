"""Polars, DuckDB and what else reads PyArrow datasets read tables: the rows that they would keep themselves,
for any condition, and no more of the table than they need."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from compactor import IngestOptions, RowKind, RowPolicy, Table, WriterOptions
from compactor.api.dataset import TableDataset, TableScanner
from compactor.errors import FragmentMissingError, UsageError
from compactor.predicate.foreign import arrow_filter, polars_filter
from tests.support.wording import refuses

ROWS: Final = 600
SMALL_GROUPS: Final = IngestOptions(writer=WriterOptions(max_rows=50))
VALUES: Final[dict[str, list[Any]]] = {
    "n": [1, -5, 0, 127, None],
    "big": [0, 2**62, -(2**62), 3, None],
    "x": [0.0, -0.0, 1.5, float("nan"), float("inf"), -2.25, None],
    "f": [0.1, 1.5, -3.0, float("nan"), None],
    "text": ["", "a", "ab", "it's", "ä%", "b_", None],
    "moment": [datetime(2026, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999), None],
    "zoned": [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 7, 1, 12, tzinfo=UTC), None],
    "day": [date(2026, 1, 1), date(1, 1, 1), date(9999, 12, 31), None],
    "price": [Decimal("1.50"), Decimal("-0.01"), Decimal("0.00"), None],
    "ok": [True, False, None],
}
SCHEMA: Final = pa.schema(
    {
        "id": pa.int64(),
        "n": pa.int8(),
        "big": pa.int64(),
        "x": pa.float64(),
        "f": pa.float32(),
        "text": pa.string(),
        "moment": pa.timestamp("us"),
        "zoned": pa.timestamp("us", "UTC"),
        "day": pa.date32(),
        "price": pa.decimal128(9, 2),
        "ok": pa.bool_(),
    }
)
COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def rows() -> pa.Table:
    """Rows in order of `id`, whose other columns go through their values at different speeds."""
    columns: dict[str, list[Any]] = {"id": list(range(ROWS))}
    for place, (name, values) in enumerate(VALUES.items()):
        columns[name] = [values[(row // (place + 1)) % len(values)] for row in range(ROWS)]
    return pa.table(columns, SCHEMA)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A table of three fragments with a column that was renamed, and some rows deleted."""
    folder = tmp_path_factory.mktemp("engines") / "t"
    renamed = ["first" if name == "text" else name for name in SCHEMA.names]
    whole = rows().rename_columns(renamed)
    made = Table.create(folder, whole.slice(0, 200), "id", SMALL_GROUPS)
    made.append(whole.slice(200, 200), SMALL_GROUPS)
    made.append(whole.slice(400), SMALL_GROUPS)
    made.alter(renames={"first": "text"})
    made.delete("id % 7 = 3")
    return made


def expected() -> pa.Table:
    left = rows()
    return left.filter(pa.array([id % 7 != 3 for id in range(ROWS)]))


Condition = tuple[Any, ...]
_column = st.sampled_from(list(VALUES))
_simple = st.one_of(
    _column.flatmap(
        lambda name: st.tuples(
            st.just("compare"),
            st.just(name),
            st.sampled_from(list(COMPARISONS)),
            st.sampled_from([value for value in VALUES[name] if value is not None]),
        )
    ),
    st.tuples(st.sampled_from(["null", "not null"]), _column),
    _column.flatmap(
        lambda name: st.tuples(
            st.just("in"),
            st.just(name),
            st.lists(
                st.sampled_from([value for value in VALUES[name] if value is not None]),
                min_size=1,
                max_size=3,
                unique_by=str,
            ),
        )
    ),
    st.tuples(st.just("begins"), st.sampled_from(["", "a", "ä%", "b_"])),
)
conditions: st.SearchStrategy[Condition] = st.recursive(
    _simple,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), inner, inner), st.tuples(st.just("not"), inner)
    ),
    max_leaves=5,
)


def with_operators(condition: Condition, of_simple: Callable[[Condition], Any]) -> Any:
    """Joins expressions by Python's operators, as most engines do. of_simple: makes those of the parts."""
    match condition:
        case "and", left, right:
            return with_operators(left, of_simple) & with_operators(right, of_simple)
        case "or", left, right:
            return with_operators(left, of_simple) | with_operators(right, of_simple)
        case "not", inner:
            return ~with_operators(inner, of_simple)
    return of_simple(condition)


def with_arrow(condition: Condition) -> pc.Expression:
    return with_operators(condition, _simple_with_arrow)


def _simple_with_arrow(condition: Condition) -> pc.Expression:
    match condition:
        case "compare", name, operator, value:
            return COMPARISONS[operator](ds.field(name), pa.scalar(value, SCHEMA.field(name).type))
        case "null", name:
            return ds.field(name).is_null()
        case "not null", name:
            return ds.field(name).is_valid()
        case "in", name, values:
            return ds.field(name).isin(pa.array(values, SCHEMA.field(name).type))
        case "begins", text:
            return pc.starts_with(ds.field("text"), text)
    raise AssertionError(condition)


def with_polars(condition: Condition) -> pl.Expr:
    expression: pl.Expr = with_operators(condition, _simple_with_polars)
    return expression


def _simple_with_polars(condition: Condition) -> pl.Expr:
    match condition:
        case "compare", name, operator, value:
            dtype = pl.Float32 if name == "f" else None
            compared: pl.Expr = COMPARISONS[operator](pl.col(name), pl.lit(value, dtype))
            return compared
        case "null", name:
            return pl.col(name).is_null()
        case "not null", name:
            return pl.col(name).is_not_null()
        case "in", name, values:
            return pl.col(name).is_in(values)
        case "begins", text:
            return pl.col("text").str.starts_with(text)
    raise AssertionError(condition)


def with_duckdb(condition: Condition, values: list[Any]) -> str:
    """Returns SQL, and adds its parameters to `values`."""
    match condition:
        case "compare", name, operator, value:
            values.append(value)
            return f"{name} {operator} ?::{_duckdb_type(name)}"
        case "null" | "not null" as test, name:
            return f"{name} is {test}"
        case "in", name, among:
            values += among
            return f"{name} in ({', '.join([f'?::{_duckdb_type(name)}'] * len(among))})"
        case "begins", text:
            values.append(text)
            return "starts_with(text, ?)"
        case "and" | "or" as word, left, right:
            return f"({with_duckdb(left, values)}) {word} ({with_duckdb(right, values)})"
        case _, inner:
            return f"not ({with_duckdb(inner, values)})"
    raise AssertionError(condition)


def _duckdb_type(name: str) -> str:
    return {
        "n": "tinyint", "big": "bigint", "x": "double", "f": "float", "text": "varchar", "day": "date",
        "moment": "timestamp", "zoned": "timestamptz", "price": "decimal(9,2)", "ok": "boolean",
    }[name]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(condition=conditions)
def test_arrow_filters_keep_the_rows_that_arrow_keeps(table: Table, condition: Condition) -> None:
    filter = with_arrow(condition)
    wanted = ds.dataset(expected()).to_table(columns=["id"], filter=filter)
    dataset = table.dataset()
    assert dataset.to_table(columns=["id"], filter=filter)["id"] == wanted["id"]
    assert dataset.count_rows(filter=filter) == len(wanted)


@settings(max_examples=40, deadline=None)
@given(condition=conditions)
def test_polars_keeps_the_rows_that_it_keeps_of_a_frame(table: Table, condition: Condition) -> None:
    filter = with_polars(condition)
    frame = pl.DataFrame(expected())
    wanted = frame.lazy().filter(filter).select("id").collect()
    assert table.to_polars().filter(filter).select("id").collect().equals(wanted)


def _with_step(frame: pl.LazyFrame, step: tuple[str, Any]) -> pl.LazyFrame:
    match step:
        case "filter", condition:
            return frame.filter(with_polars(condition))
        case "slice", (start, length):
            return frame.slice(start, length)
        case method, length:
            cut: pl.LazyFrame = getattr(frame, method)(length)
            return cut
    raise AssertionError(step)


_lengths = st.integers(0, ROWS)
_steps = st.one_of(
    st.tuples(st.just("filter"), _simple),
    st.tuples(st.sampled_from(["head", "limit", "tail"]), _lengths),
    st.tuples(st.just("slice"), st.tuples(st.sampled_from([0, 0, 3, -40]), _lengths)),
)


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@settings(max_examples=40, deadline=None)
@given(steps=st.lists(_steps, min_size=2, max_size=4))
@example(steps=[("head", 20), ("filter", ("compare", "n", "=", 127))])
@example(steps=[("slice", (0, 300)), ("filter", ("compare", "ok", "=", False))])
@example(steps=[("filter", ("compare", "n", "=", 127)), ("limit", 20)])
def test_polars_cuts_and_filters_in_the_order_that_it_is_told(
    table: Table, engine: Any, steps: list[tuple[str, Any]]
) -> None:
    ours, plain = table.to_polars(), pl.DataFrame(expected()).lazy()
    for step in steps:
        ours, plain = _with_step(ours, step), _with_step(plain, step)
    wanted = plain.select("id").collect()
    assert ours.select("id").collect(engine=engine).equals(wanted), ours.explain()


@settings(max_examples=40, deadline=None)
@given(condition=conditions)
def test_duckdb_keeps_the_rows_that_it_keeps_of_arrow(table: Table, condition: Condition) -> None:
    values: list[Any] = []
    where = with_duckdb(condition, values)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("plain", expected())
        table.to_duckdb(connection, "ours")
        wanted, found = (
            connection.execute(f"SELECT id FROM {name} WHERE {where}", values).fetchall()
            for name in ("plain", "ours")
        )
    assert found == wanted


def test_all_columns_come_back_as_they_are(table: Table) -> None:
    frame = pl.DataFrame(expected())
    # Of Polars, NaN equals itself.
    assert frame.equals(pl.DataFrame(table.dataset().to_table()))
    assert table.to_polars().collect().equals(frame)
    with duckdb.connect() as connection:
        found = pa.table(table.to_duckdb(connection, "ours"))
    assert found.num_rows == len(expected()) and found.column_names == SCHEMA.names


@pytest.mark.parametrize(
    ("expression", "sql"),
    [
        (ds.field("n") > 1, '"n" > 1'),
        (ds.scalar(1) < ds.field("n"), '"n" > 1'),
        (~(ds.field("n") == 1), 'NOT ("n" = 1)'),
        (ds.field("x") > 1.5, 'NOT ("x" <= 1.5)'),
        (~(ds.field("x") > 1.5), None),
        (~(ds.field("x") > 1.5) & ds.field("ok"), '("ok" = TRUE)'),
        (ds.field("text").isin(["a", "it's"]), "\"text\" IN ('a', 'it''s')"),
        (~ds.field("text").isin(["a"]), None),
        (pc.starts_with(ds.field("text"), "b_"), "\"text\" LIKE 'b\\_%'"),
        (pc.starts_with(ds.field("text"), "b", ignore_case=True), None),
        ((ds.field("n") + 1) > 3, None),
        (ds.field("n") > ds.field("big"), None),
        (ds.field("gone") > 1, None),
        (ds.field("x").is_null(nan_is_null=True), None),
        (ds.field("price") < Decimal("1.5"), '"price" < 1.5'),
        (ds.field("day") == date(1, 1, 1), "\"day\" = DATE '0001-01-01'"),
        (
            ds.field("zoned") >= datetime(2026, 7, 1, tzinfo=UTC),
            "\"zoned\" >= TIMESTAMPTZ '2026-07-01 00:00:00+00:00'",
        ),
        (ds.field("moment") > datetime(2026, 7, 1, tzinfo=UTC), None),
        (ds.field("moment") > pa.scalar(1, pa.timestamp("ns")), None),
        ((ds.field("n") > 1) | (ds.field("n") + 1 > 3), None),
    ],
)
def test_as_much_of_an_arrow_filter_is_pushed_down(
    expression: pc.Expression, sql: str | None
) -> None:
    assert arrow_filter.condition_of(expression, SCHEMA) == sql


def test_as_much_of_a_polars_filter_is_pushed_down() -> None:
    column = pl.col
    pushed = {
        '"n" > 1': column("n") > pl.lit(1, pl.Int8),
        'NOT ("x" <= 1.5)': column("x") > 1.5,
        '("n" >= 1) AND ("n" < 5)': column("n").is_between(
            pl.lit(1, pl.Int8), pl.lit(5, pl.Int8), closed="left"
        ),
        "\"text\" IN ('a', 'b')": column("text").is_in(["a", "b"]),
        "\"text\" LIKE 'a%'": column("text").str.starts_with("a"),
        '("ok" = TRUE) OR ("n" IS NULL)': column("ok") | column("n").is_null(),
    }
    for sql, expression in pushed.items():
        frame = pl.DataFrame(
            schema={"n": pl.Int8, "x": pl.Float64, "text": pl.String, "ok": pl.Boolean}
        )
        seen: list[str | None] = []

        def source(_columns: Any, predicate: Any, _rows: Any, _size: Any) -> Any:
            seen.append(polars_filter.condition_of(predicate, SCHEMA))  # noqa: B023
            yield frame  # noqa: B023

        pl.io.plugins.register_io_source(source, schema=frame.schema).filter(expression).collect()
        assert seen == [sql]


def test_row_groups_are_skipped_by_a_filter_and_columns_are_left_out(table: Table) -> None:
    scanner = table.dataset().scanner(columns=["n"], filter=ds.field("id") >= 590)
    assert scanner.to_table().column_names == ["n"]
    assert scanner.report.fragments_skipped == 2
    assert scanner.report.row_groups_skipped == 3
    assert scanner.report.rows_read == 50


def test_duckdb_asks_for_columns_and_says_its_conditions(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanners: list[TableScanner] = []
    scanner = TableDataset.scanner

    def noted(*arguments: Any, **options: Any) -> TableScanner:
        scanners.append(scanner(*arguments, **options))
        return scanners[-1]

    monkeypatch.setattr(TableDataset, "scanner", noted)
    with duckdb.connect() as connection:
        table.to_duckdb(connection, "t")
        query = "SELECT max(text) FROM t WHERE id >= 590 AND n IN (0, 127)"
        assert connection.sql(query).fetchall() == [("",)]
        (read,) = (found for found in scanners if found.report.rows_read)
        assert read.projected_schema.names == ["text"]
        assert read.report.rows_read == 50
        # A function is none of the conditions that it says.
        query = "SELECT count(*) FROM t WHERE lower(text) = 'a'"
        assert connection.sql(query).fetchall() == [(expected()["text"].to_pylist().count("a"),)]


def test_columns_may_be_expressions(table: Table) -> None:
    found = table.dataset().to_table(
        columns={"twice": ds.field("id") * 2, "text": ds.field("text")}, filter=ds.field("n") == 127
    )
    wanted = ds.dataset(expected()).to_table(
        columns={"twice": ds.field("id") * 2, "text": ds.field("text")}, filter=ds.field("n") == 127
    )
    assert found.equals(wanted)


def test_a_dataset_stays_at_its_version_and_survives_a_pickle(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", pa.table({"k": [1, 2]}), "k")
    dataset, frame = table.dataset(), table.to_polars()
    table.append(pa.table({"k": [3]}))
    again = pickle.loads(pickle.dumps(dataset))
    assert [d.count_rows() for d in (dataset, again, table.dataset())] == [2, 2, 3]
    assert frame.collect().height == 2


def test_heads_limits_and_batches_read_no_further(table: Table) -> None:
    dataset = table.dataset()
    assert dataset.head(3)["id"].to_pylist() == [0, 1, 2]
    assert dataset.head(0).num_rows == 0
    assert max(batch.num_rows for batch in dataset.to_batches(batch_size=7)) == 7
    for size in (0, -1):
        with refuses(UsageError, "batch_size"):
            dataset.to_table(batch_size=size)
    assert table.to_polars().head(3).collect()["id"].to_list() == [0, 1, 2]
    assert table.to_polars().select(pl.len()).collect().item() == len(expected())


def test_every_method_of_a_pyarrow_dataset_is_ours() -> None:
    """Those of PyArrow would work on a dataset of its own, which there is none of."""
    theirs = {name for name in dir(ds.Dataset) if not name.startswith("_")}
    assert theirs <= set(vars(TableDataset))


@pytest.mark.parametrize("method", ["filter", "sort_by", "join", "take", "get_fragments"])
def test_what_a_table_can_not_do_as_a_dataset_says_what_can(table: Table, method: str) -> None:
    with pytest.raises(NotImplementedError, match=rf"^{method}: a table is no dataset of files; "):
        getattr(table.dataset(), method)(None)


def test_an_unknown_column_is_named(table: Table) -> None:
    with pytest.raises(UsageError, match="gone"):
        table.dataset().to_table(columns=["gone"])


@pytest.mark.parametrize(
    "dtype",
    [
        pa.timestamp("us", "+05:30"),
        pa.month_day_nano_interval(),
        pa.list_view(pa.int64()),
        pa.list_(pa.int64(), 0),
        pa.decimal256(20, 2),
        pa.decimal256(50, 0),
        pa.list_(pa.decimal256(20, 2)),
    ],
    ids=str,
)
def test_a_column_that_polars_can_not_read_is_named(tmp_path: Path, dtype: pa.DataType) -> None:
    rows = pa.table({"k": [1], "v": pa.array([None], dtype)})
    table = Table.create(tmp_path / "t", rows, "k")
    with refuses(UsageError, "column 'v'", "Polars can't read", "scan"):
        table.to_polars()


@pytest.mark.parametrize(
    "dtype",
    [pa.float16(), pa.list_(pa.float16()), pa.decimal256(50, 0), pa.decimal128(5, -2)],
    ids=str,
)
def test_a_column_that_duckdb_can_not_read_is_named(tmp_path: Path, dtype: pa.DataType) -> None:
    rows = pa.table({"k": [1], "v": pa.array([None], dtype)})
    table = Table.create(tmp_path / "t", rows, "k")
    with (
        duckdb.connect() as connection,
        refuses(UsageError, "column 'v'", "DuckDB can't read", "scan"),
    ):
        table.to_duckdb(connection, "t")
    with duckdb.connect() as connection:
        assert connection.from_arrow(table.scan(["k"]).to_table()).fetchall() == [(1,)]


def test_another_error_of_duckdb_stays_as_it_is(table: Table) -> None:
    with duckdb.connect() as connection:
        pass
    with pytest.raises(duckdb.ConnectionException):
        table.to_duckdb(connection, "t")


def test_polars_reads_a_column_without_a_name(tmp_path: Path) -> None:
    """Of itself it would name the column after its place, as another column is named here."""
    rows = pa.table({"k": [1, 2], "": [5, 6], "column_1": [7, 8]})
    frame = Table.create(tmp_path / "t", rows, "k").to_polars()
    wanted = [{"k": 1, "": 5, "column_1": 7}, {"k": 2, "": 6, "column_1": 8}]
    assert frame.collect().to_dicts() == wanted
    assert frame.filter(pl.col("") == 6).select("column_1", "").collect().rows() == [(8, 6)]


def test_filters_see_merged_rows(tmp_path: Path) -> None:
    """An older row of the key would satisfy them."""
    options = IngestOptions(rows=RowPolicy(RowKind.LAST))
    table = Table.create(tmp_path / "t", pa.table({"k": [1, 2], "v": [5, 6]}), "k", options)
    table.append(pa.table({"k": [1], "v": [7]}))
    assert table.dataset().count_rows(filter=ds.field("v") == 5) == 0
    assert table.to_polars().filter(pl.col("v") == 5).collect().is_empty()
    with duckdb.connect() as connection:
        assert table.to_duckdb(connection, "t").filter("v = 5").fetchall() == []
        assert connection.sql("SELECT k FROM t WHERE v = 7").fetchall() == [(1,)]


def test_an_error_of_the_table_is_told_by_each_engine(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", pa.table({"k": [1]}), "k")
    (key,) = table.fragments()["key"].to_pylist()
    (tmp_path / "t" / key).unlink()
    with pytest.raises(FragmentMissingError):
        table.dataset().to_table()
    with pytest.raises(FragmentMissingError):
        table.to_polars().collect()
    with duckdb.connect() as connection, pytest.raises(duckdb.Error, match=key):
        table.to_duckdb(connection, "t").fetchall()
