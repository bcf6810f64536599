"""Joins of every kind beside those of DuckDB: keys of different types, expressions as keys, little memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.errors import ConfigError
from tests.pipelines.join_support import FLOATS, INTS, TEXTS, shown
from tests.pipelines.support import MIB, lines_of, run_of, sources
from tests.support.wording import refuses

NAN: Final = float("nan")
HOWS: Final = ("inner", "left", "right", "full", "semi", "anti")
METHODS: Final = ("hash", "sort_merge")


def joined(
    tables: dict[str, pa.Table], on: Any, how: str, method: str = "hash", **given: Any
) -> tuple[pa.Table, Any]:
    combine = {"probe": "a", "build": "b", "on": on, "how": how, "method": method}
    with TemporaryDirectory() as folder:
        path = Path(folder) / "o.arrow"
        nodes = {
            **sources("a", "b"),
            "j": {"combine": combine},
            "out": {"output": {"input": "j", "path": str(path)}},
        }
        report = run_of(nodes, tables, **given).run()
        with pa.ipc.open_file(path) as file:
            return file.read_all(), report


def rows_of(table: pa.Table) -> list[Any]:
    return shown(tuple(row.values()) for row in table.to_pylist())


def of_duckdb(tables: dict[str, pa.Table], how: str, *conditions: str) -> list[Any]:
    """The rows in the order of the hash join. NaN is equal to itself there, so conditions leave it out."""
    columns = "l, x, y" if how in ("semi", "anti") else "l, x, y, r"
    keys = " AND ".join(conditions)
    order = "ORDER BY a.n IS NULL, a.n, b.n" if columns.endswith("r") else "ORDER BY a.n"
    sql = f"SELECT {columns} FROM a {how} JOIN b ON {keys} {order}"
    sql = sql.replace(
        "x, y", "coalesce(x, u), coalesce(y, v)" if how in ("right", "full") else "x, y"
    )
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table.append_column("n", pa.array(range(len(table)))))
        return shown(connection.sql(sql).fetchall())


KEYS = st.lists(st.tuples(FLOATS, TEXTS), max_size=12)


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=30, deadline=None)
@given(lefts=KEYS, rights=KEYS, batch_size=st.sampled_from([1, 5, 2048]))
def test_a_hash_join_gives_duckdbs_rows_in_its_order(
    how: str, lefts: list[Any], rights: list[Any], batch_size: int
) -> None:
    tables = {
        "a": pa.table({"l": range(len(lefts)), "x": pa.array([x for x, _ in lefts], pa.float64()),
                       "y": pa.array([y for _, y in lefts], pa.string())}),
        "b": pa.table({"u": pa.array([x for x, _ in rights], pa.float64()),
                       "v": pa.array([y for _, y in rights], pa.string()), "r": range(len(rights))}),
    }  # fmt: skip
    found, _ = joined(tables, {"x": "u", "y": "v"}, how, batch_size=batch_size)
    assert rows_of(found) == of_duckdb(tables, how, "x = u", "NOT isnan(x)", "y = v")


def large(rows: int, seed: int, keys: int) -> list[int | None]:
    rng = np.random.default_rng(seed)
    heavy = rng.integers(0, 3, rows)
    values = np.where(rng.random(rows) < 0.001, heavy, rng.integers(0, keys, rows))
    return [
        None if missing else int(v)
        for v, missing in zip(values, rng.random(rows) < 0.05, strict=True)
    ]


@pytest.mark.parametrize("how", HOWS)
def test_neither_memory_nor_batches_change_a_row_of_a_hash_join(how: str) -> None:
    tables = {
        "a": pa.table(
            {"l": range(20_000), "x": large(20_000, 1, 15_000), "y": ["y" * 50] * 20_000}
        ),
        "b": pa.table(
            {"u": large(15_000, 2, 15_000), "v": ["y" * 50] * 15_000, "r": range(15_000)}
        ),
    }
    on = {"x": "u", "y": "v"}
    plenty, report = joined(tables, on, how)
    assert report.spills == 0
    little, report = joined(tables, on, how, memory={"limit": "3MiB"}, batch_size=300)
    assert report.spills > 0 and report.peak_bytes <= 3 * MIB
    assert little.equals(plenty)
    assert rows_of(plenty) == of_duckdb(tables, how, "x = u", "y = v")


START: Final = datetime(2026, 1, 1, tzinfo=UTC)
VALUES: Final[dict[pa.DataType, list[Any]]] = {
    pa.int8(): [-1, 0, 1, 127, None],
    pa.int64(): [-1, 0, 1, 127, 2**63 - 1, None],
    pa.uint8(): [0, 1, 127, 255, None],
    pa.uint32(): [0, 1, 255, None],
    pa.uint64(): [0, 1, 2**63 - 1, 2**64 - 1, None],
    pa.decimal128(5, 2): [Decimal("-1.00"), Decimal("1.00"), Decimal("1.50"), None],
    pa.decimal128(38, 0): [Decimal(-1), Decimal(2**64 - 1), Decimal(10**37), None],
    pa.decimal256(60, 20): [Decimal("-1"), Decimal("1.5"), None],
    pa.float32(): [-1.0, 0.0, 1.5, NAN, None],
    pa.float64(): [-1.0, -0.0, 1.5, 1.1, NAN, None],
    pa.string(): ["", "a", "b", None],
    pa.large_string(): ["", "b", "c", None],
    pa.dictionary(pa.int32(), pa.string()): ["a", "c", None],
    pa.timestamp("s", "UTC"): [START, START + timedelta(days=10**6), None],
    pa.timestamp("ns", "Europe/Berlin"): [START, START + timedelta(microseconds=1), None],
    pa.timestamp("ms", "UTC"): [START, START + timedelta(days=10**6), None],
    pa.timestamp("us", "Europe/Berlin"): [START, START + timedelta(microseconds=1), None],
    pa.duration("s"): [timedelta(seconds=1), timedelta(seconds=-2), None],
    pa.duration("us"): [timedelta(seconds=1), timedelta(microseconds=3), None],
    pa.binary(): [b"", b"ab", None],
    pa.binary(2): [b"ab", b"cd", None],
}
KINDS: Final = (
    ("int8", "int64", "uint8", "uint32", "uint64", "decimal"),
    ("float", "double"),
    ("string", "large_string", "dictionary"),
    ("timestamp",),
    ("duration",),
    ("binary", "fixed_size_binary"),
)
PAIRS: Final = [
    (one, other) for kind in KINDS for one in VALUES for other in VALUES
    if str(one).startswith(kind) and str(other).startswith(kind)
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_keys_of_different_types_are_equal_if_their_values_are(
    one: pa.DataType, other: pa.DataType, method: str
) -> None:
    tables = {
        "a": pa.table({"x": pa.array(VALUES[one], one), "l": range(len(VALUES[one]))}),
        "b": pa.table({"u": pa.array(VALUES[other], other), "r": range(len(VALUES[other]))}),
    }
    pairs = [
        (left, right)
        for left, mine in enumerate(VALUES[one])
        for right, theirs in enumerate(VALUES[other])
        if mine is not None and mine == theirs
    ]
    found, _ = joined(tables, {"x": "u"}, "inner", method)
    assert sorted(zip(found["l"].to_pylist(), found["r"].to_pylist(), strict=True)) == pairs
    assert found.schema.field("x").type in (one, pa.string())
    found, _ = joined(tables, {"x": "u"}, "anti", method)
    lonely = set(range(len(VALUES[one]))) - {left for left, _ in pairs}
    assert sorted(found["l"].to_pylist()) == sorted(lonely)


@pytest.mark.parametrize("method", METHODS)
def test_lonely_rows_of_the_build_side_have_their_keys_in_a_type_that_holds_both(
    method: str,
) -> None:
    tables = {
        "a": pa.table({"x": pa.array([1, 2], pa.int8()), "l": [1, 2]}),
        "b": pa.table({"u": pa.array([2**64 - 1, 2], pa.uint64()), "r": [3, 4]}),
    }
    found, _ = joined(tables, {"x": "u"}, "full", method)
    assert sorted(found.to_pylist(), key=lambda row: row["x"]) == [
        {"x": 1, "l": 1, "r": None},
        {"x": 2, "l": 2, "r": 4},
        {"x": 2**64 - 1, "l": None, "r": 3},
    ]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("how", HOWS)
def test_expressions_are_keys_and_no_column_is_left_out(how: str, method: str) -> None:
    tables = {
        "a": pa.table({"name": ["Ann", "bob", "Zoe", None], "l": [1, 2, 3, 4]}),
        "b": pa.table({"login": ["ANN", "Bob", "eve", "ann"], "r": [1, 2, 3, 4]}),
    }
    found, _ = joined(tables, {"lower(name)": "lower(login)"}, how, method)
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        expected = connection.sql(
            f"SELECT * FROM a {how} JOIN b ON lower(name) = lower(login)"
        ).fetchall()
    rows = [tuple(row.values()) for row in found.to_pylist()]
    assert sorted(rows, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("how", HOWS)
def test_a_join_by_an_expression_gives_the_same_rows_when_its_build_side_does_not_fit(
    how: str,
) -> None:
    """The probe side's rows, which are sorted again, spill too."""
    texts = [f"{n:08} {'A' * 40}" for n in range(40_000)]
    tables = {
        "a": pa.table({"n": range(20_000), "x": texts[:20_000]}),
        "b": pa.table({"m": range(39_000), "u": [text.lower() for text in texts[1_000:]]}),
    }
    (much, _), (little, report) = (
        joined(tables, {"lower(x)": "u"}, how, memory={"limit": limit})
        for limit in ("512MiB", "4MiB")
    )
    assert report.spills > 0
    assert much.num_rows > 0 and much.equals(little)


@pytest.mark.parametrize("method", METHODS)
def test_a_row_for_which_a_key_fails_is_a_dead_letter(method: str, tmp_path: Path) -> None:
    tables = {"a": pa.table({"x": [1, 0]}), "b": pa.table({"u": [4, 8]})}
    letters = str(tmp_path / "bad.ndjson")
    found, report = joined(
        tables, {"4 / x": "u"}, "left", method, on_error="continue", dead_letter=letters
    )
    assert found.to_pylist() == [{"x": 1, "u": 4}] and report.dlq_count == 1
    assert [(row["source"], row["row"], row["node"]) for row in lines_of(Path(letters))] == [
        ("a", 2, "j")
    ]


@pytest.mark.parametrize(
    ("on", "how"),
    [
        ({"i": "t_"}, "inner"), ({"i": "f_"}, "inner"), ({"ts": "zoned_"}, "inner"), ({"ts": "ms_"}, "full"),
        ({"lower(i)": "t_"}, "inner"), ({"lower(t)": "nix(t_)"}, "inner"),
        ({"lower(t)": "upper(nix)"}, "inner"), ({"nix": "t_"}, "inner"), ({"l": "l_"}, "semi"),
    ],
)  # fmt: skip
def test_keys_that_do_not_compare_are_refused_before_rows_are_read(on: Any, how: str) -> None:
    table = pa.table(
        {
            "i": pa.array([1]),
            "f": [1.0],
            "t": ["x"],
            "l": [[1]],
            "ts": pa.array([1], pa.timestamp("us")),
            "zoned": pa.array([1], pa.timestamp("us", "UTC")),
            "ms": pa.array([1], pa.timestamp("ms")),
        }
    )
    tables = {"a": table, "b": table.rename_columns([f"{name}_" for name in table.column_names])}
    with refuses(ConfigError, "test.yaml, line 1: node 'j'"):
        joined(tables, on, how)


@settings(max_examples=40, deadline=None)
@given(st.lists(INTS, max_size=15), st.lists(INTS, max_size=15), st.sampled_from(HOWS))
def test_both_methods_give_the_same_rows(
    lefts: list[int | None], rights: list[int | None], how: str
) -> None:
    tables = {
        "a": pa.table({"x": pa.array(lefts, pa.int16()), "l": range(len(lefts))}),
        "b": pa.table({"u": pa.array(rights, pa.int64()), "r": range(len(rights))}),
    }
    one, other = (joined(tables, {"x": "u"}, how, method)[0] for method in METHODS)
    assert sorted(rows_of(one), key=str) == sorted(rows_of(other), key=str)


def test_a_hash_join_for_an_output_holds_its_build_side_and_few_rows() -> None:
    tables = {
        "a": pa.table({"x": [n % 10 for n in range(4000)], "l": ["p" * 60] * 4000}),
        "b": pa.table({"u": [n % 10 for n in range(500)], "r": ["q" * 60] * 500}),
    }
    found, report = joined(tables, {"x": "u"}, "inner", memory={"limit": "4MiB"})
    assert found.num_rows == 200_000 and found.nbytes > 20 * MIB
    assert report.spills == 0 and report.peak_bytes <= 4 * MIB
