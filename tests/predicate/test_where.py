"""Conditions: read, evaluated and pruned by. DuckDB is the oracle."""

from __future__ import annotations

import decimal
import itertools
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor import Table
from compactor.errors import UsageError
from compactor.predicate.parse import parse_where
from compactor.predicate.prune import may_match
from compactor.predicate.tree import matching
from compactor.write.ingest import IngestOptions
from lsm_fragment.container.writer import WriterOptions
from tests.support.wording import refuses

START = datetime(2026, 11, 1, tzinfo=UTC)
WORDS = ["", "a", "ab", "abc", "b", "B%", "b_", "ä", "zz" * 60, "zz" * 60 + "y"]
SCHEMA = pa.schema(
    {
        "n": pa.int8(),
        "big": pa.int64(),
        "x": pa.float64(),
        "text": pa.string(),
        "word": pa.dictionary(pa.int32(), pa.string()),
        "moment": pa.timestamp("us", "UTC"),
        "day": pa.date32(),
        "price": pa.decimal128(9, 2),
        "ok": pa.bool_(),
        "a.b": pa.int64(),
    }
)


def sample(rows: int, seed: int) -> pa.Table:
    """Rows of small domains with nulls, sorted by text, n, so that row groups have narrow bounds."""
    rng = np.random.default_rng(seed)

    def some(values: list[Any]) -> list[Any]:
        return [
            None if rng.random() < 0.15 else values[i] for i in rng.integers(0, len(values), rows)
        ]

    table = pa.table(
        {
            "n": some([-3, 0, 1, 5, 127]),
            "big": some([-(1 << 62), 0, 7, (1 << 53) + 1]),
            "x": some([-1.5, -0.0, 0.0, 2.5, float("inf")]),
            "text": some(WORDS),
            "word": some(WORDS),
            "moment": some([START + timedelta(hours=h) for h in range(6)]),
            "day": some([(START + timedelta(days=d)).date() for d in range(4)]),
            "price": some([decimal.Decimal(p) for p in ("-1.25", "0.00", "10.50")]),
            "ok": some([True, False]),
            "a.b": some([1, 2, 3]),
        }
    )
    return pa.table([table[f.name].cast(f.type) for f in SCHEMA], schema=SCHEMA)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


NUMBERS = st.sampled_from(["-200", "-3", "0", "1", "2.5", "7", "300", "-1.5", "9007199254740993"])
VALUES = {
    "n": NUMBERS,
    "big": NUMBERS,
    "x": NUMBERS,
    "price": st.sampled_from(["-1.25", "0", "10.5", "99"]),
    '"a.b"': st.sampled_from(["1", "2", "9"]),
    "text": st.sampled_from([*WORDS, "aa", "q"]).map(quoted),
    "word": st.sampled_from([*WORDS, "aa", "q"]).map(quoted),
    "moment": st.sampled_from(["2026-11-01", "2026-11-01 03:00:00", "2027-01-01T00:00:00"]).map(
        quoted
    ),
    "day": st.sampled_from(["2026-11-01", "2026-11-03", "2030-01-01"]).map(quoted),
    "ok": st.sampled_from(["true", "false"]),
}
TEXTS = st.sampled_from(["text", "word"])
PATTERNS = st.sampled_from(["a%", "%b", "_", "ab_", "%", "zz%y", "B%", "abc", ""])


@st.composite
def leaves(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(sorted(VALUES)))
    value = VALUES[column]
    kind = draw(
        st.sampled_from(["compare", "compare", "mirrored", "in", "between", "null", "like"])
    )
    negation = draw(st.sampled_from(["", " NOT"]))
    op = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
    if kind == "compare":
        return f"{column} {op} {draw(value)}"
    if kind == "mirrored":
        return f"{draw(value)} {op} {column}"
    if kind == "in":
        items = draw(st.lists(value, min_size=1, max_size=3)) + draw(
            st.sampled_from([[], [], ["NULL"]])
        )
        return f"{column}{negation} IN ({', '.join(items)})"
    if kind == "between":
        return f"{column}{negation} BETWEEN {draw(value)} AND {draw(value)}"
    if kind == "null":
        return f"{column} IS{negation} NULL"
    like = draw(st.sampled_from(["LIKE", "ILIKE"]))
    return f"{draw(TEXTS)}{negation} {like} {quoted(draw(PATTERNS))}"


CONDITIONS = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        inner.map(lambda text: f"NOT ({text})"),
    ),
    max_leaves=6,
)


def by_duckdb(rows: pa.Table, condition: str) -> list[int]:
    """Positions of the rows of which the condition holds."""
    numbered = rows.append_column("position", pa.array(range(len(rows))))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", numbered)
        found = connection.execute(f"SELECT position FROM rows WHERE {condition} ORDER BY position")
        return [position for (position,) in found.fetchall()]


@settings(max_examples=300, deadline=None)
@given(CONDITIONS, st.integers(0, 5))
def test_a_condition_holds_of_the_rows_that_duckdb_finds(condition: str, seed: int) -> None:
    rows = sample(40, seed)
    arrays = {name: rows[name].combine_chunks() for name in rows.column_names}
    found = matching(parse_where(condition, SCHEMA), arrays, len(rows))
    assert np.flatnonzero(found.fill_null(False)).tolist() == by_duckdb(rows, condition)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Overlapping fragments of small row groups."""
    url = str(tmp_path_factory.mktemp("where") / "table")
    options = IngestOptions(rows_per_fragment=60, writer=WriterOptions(max_rows=7))
    made = Table.create(url, sample(150, 10), "text,n:desc", options)
    for seed in range(11, 14):
        made.append(sample(80, seed), options)
    return made


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(CONDITIONS)
def test_what_a_condition_leaves_unread_has_no_row_of_it(table: Table, condition: str) -> None:
    everything = table.scan().to_table()
    scan = table.scan(where=condition)
    expected = everything.take(pa.array(by_duckdb(everything, condition), pa.int64()))
    found = scan.to_table()
    assert found.to_pylist() == expected.to_pylist()
    report = scan.report
    assert report.rows == len(found) <= report.rows_read <= len(everything)


def test_conditions_on_sort_columns_skip_fragments_and_row_groups(table: Table) -> None:
    scan = table.scan(["n"], where="text = 'abc'")
    assert len(scan.to_table()) > 0
    assert scan.report.row_groups_skipped > scan.report.row_groups // 2
    nothing = table.scan(where="text > 'zzzz' AND text < 'zzzzz' AND n = 5")
    assert nothing.to_table().num_rows == 0
    assert table.scan(where="x > 1000000 AND x < 1").to_table().num_rows == 0


def test_fragments_that_the_log_rules_out_are_never_opened(tmp_path: Path) -> None:
    rows = pa.table({"k": range(1000), "v": range(1000)})
    table = Table.create(str(tmp_path / "t"), rows, "k", IngestOptions(rows_per_fragment=100))
    (scan := table.scan(where="k BETWEEN 250 AND 260")).to_table()
    assert (scan.report.fragments, scan.report.fragments_skipped) == (10, 9)
    assert scan.report.rows == 11
    backwards = Table.create(
        str(tmp_path / "d"), rows, "k:desc", IngestOptions(rows_per_fragment=100)
    )
    (scan := backwards.scan(where="k >= 990")).to_table()
    assert (scan.report.fragments_skipped, scan.report.rows) == (9, 10)


def test_not_a_number_fulfils_no_comparison_but_the_negation_of_each(tmp_path: Path) -> None:
    values = [1.0, float("nan"), None, 3.0]
    rows = pa.table({"k": range(4), "x": values})
    table = Table.create(
        str(tmp_path / "t"), rows, "k", IngestOptions(writer=WriterOptions(max_rows=1))
    )
    for condition, expected in {
        "x > 2": [3],
        "NOT (x > 2)": [0, 1],
        "NOT (x < 100)": [1],
        "x <> 1": [3],
        "NOT (x <> 1)": [0, 1],
        "x NOT IN (1)": [1, 3],
        "x = 3 OR x IS NULL": [2, 3],
    }.items():
        assert table.scan(["k"], condition).to_table()["k"].to_pylist() == expected, condition


def test_columns_that_a_fragment_has_not_are_null_there(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), pa.table({"k": [1, 2]}), "k")
    table.append(pa.table({"k": [3, 4], "v": ["x", None]}))
    assert table.scan(["k"], "v IS NULL").to_table()["k"].to_pylist() == [1, 2, 4]
    assert table.scan(["k"], "v = 'x'").to_table()["k"].to_pylist() == [3]
    (scan := table.scan(["k"], "v <> 'x'")).to_table()
    assert scan.report.row_groups_skipped == 1


@pytest.mark.parametrize(
    "condition",
    [
        "n = ",
        "",
        "level = 'x'",
        "text = abc",
        "n",
        "n = 'x'",
        "text = 1",
        "moment > 5",
        "moment > 'yesterday'",
        "n LIKE 'a%'",
        "count(*) > 1",
        "n IN (SELECT 1)",
        "n BETWEEN SYMMETRIC 1 AND 2",
        "text LIKE 'a' ESCAPE '##'",
        "text LIKE 'a#' ESCAPE '#'",
        "text LIKE 'a\\'",
        f"text LIKE '{'a_' * 2000}'",
        "n = 1e9999999999999999999999",
        "moment > '2026-11-21 25:00:00'",
        "n = 1; DROP TABLE x",
        "ok = 1",
        "n = CAST(1.7 AS INT)",
        "(" * 400 + "n = 1" + ")" * 400,
    ],
)
def test_what_is_wrong_with_a_condition_is_said(condition: str) -> None:
    with refuses(UsageError):
        parse_where(condition, SCHEMA)


def test_times_are_compared_in_the_types_that_a_column_has(tmp_path: Path) -> None:
    times = [time(0, 0, 1), time(12, 30), None]
    rows = pa.table(
        {
            "k": range(3),
            "s": pa.array(times, pa.time32("s")),
            "us": pa.array(times, pa.time64("us")),
            "day": pa.array([date(2026, 1, 1), date(2026, 1, 2), None], pa.date64()),
            "code": pa.array([b"ab", b"cd", None], pa.binary(2)),
            "f": pa.array([0.1, 0.5, None], pa.float32()),
            "none": pa.nulls(3),
        }
    )
    table = Table.create(str(tmp_path / "t"), rows, "k")
    for condition, expected in {
        "s > '00:00:01'": [1],
        "us <= TIME '12:30'": [0, 1],
        "day = DATE '2026-01-02'": [1],
        "code = 'ab'": [0],
        "f = 0.1": [0],
        "f IN (0.1, 0.2)": [0],
        "f <= 0.1": [0],
        "none = 1": [],
        "none IS NULL AND k > 1": [2],
    }.items():
        assert table.scan(["k"], condition).to_table()["k"].to_pylist() == expected, condition


@pytest.mark.long
def test_long_lists_and_chains_are_conditions_too(table: Table) -> None:
    numbers = range(-1500, 1500)
    chain = " OR ".join(f"n = {number}" for number in numbers)
    listed = f"n IN ({', '.join(map(str, numbers))})"
    expected = table.scan(where="n IS NOT NULL").to_table().num_rows
    assert table.scan(where=chain).to_table().num_rows == expected
    assert table.scan(where=listed).to_table().num_rows == expected
    words = ", ".join(f"'none {n}'" for n in range(5000))
    (scan := table.scan(where=f"text IN ({words})")).to_table()
    assert scan.report.rows == 0


def test_without_statistics_nothing_is_ruled_out() -> None:
    from compactor.predicate.prune import UNKNOWN

    for column, op in itertools.product(sorted(VALUES), ["=", "<", ">", "<>"]):
        value = {
            "ok": "true",
            "text": "'a'",
            "word": "'a'",
            "moment": "'2026-01-01'",
            "day": "'2026-01-01'",
        }
        condition = parse_where(f"{column} {op} {value.get(column, '1')}", SCHEMA)
        assert may_match(condition, lambda _: UNKNOWN), column
