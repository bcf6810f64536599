"""Computed conditions of queries, exports and deletions of tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compactor import Table
from compactor.errors import DataError
from compactor.rows.policy import RowKind, RowPolicy
from compactor.write.ingest import IngestOptions
from lsm_fragment.container.writer import WriterOptions
from tests.support.wording import refuses

ROWS = 6000


def rows_of(count: int = ROWS) -> pa.Table:
    numbers = range(count)
    return pa.table(
        {
            "id": pa.array(numbers),
            "divisor": pa.array([n % 5 for n in numbers]),
            "level": pa.array(
                [("info", "WARN", "error")[n % 3] for n in numbers]
            ).dictionary_encode(),
            "message": [
                None if n % 11 == 0 else f"request {n * 7919} took {n % 97} ms" for n in numbers
            ],
            "at": pa.array([n * 1_000_000 for n in numbers], pa.timestamp("us", "UTC")),
        }
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    options = IngestOptions(writer=WriterOptions(max_rows=500))
    return Table.create(str(tmp_path_factory.mktemp("t") / "t"), rows_of(), "id", options=options)


def expected(condition: Any) -> list[int]:
    return [row["id"] for row in rows_of().to_pylist() if condition(row)]


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ("upper(level) = 'WARN'", lambda r: r["level"] == "WARN"),
        ("level = lower(level)", lambda r: r["level"] != "WARN"),
        ("id % 7 = divisor", lambda r: r["id"] % 7 == r["divisor"]),
        (
            "length(message) > 25 AND id < 1000",
            lambda r: r["message"] and len(r["message"]) > 25 and r["id"] < 1000,
        ),
        (
            "CAST(regexp_extract(message, 'took ([0-9]+)', 1) AS INT) > 90",
            lambda r: r["message"] and r["id"] % 97 > 90,
        ),
        (
            "message LIKE '%took 5 ms' AND right(message, 4) = '5 ms'",
            lambda r: r["message"] and r["id"] % 97 == 5,
        ),
        ("divisor <> 0 AND id / divisor = 3", lambda r: r["divisor"] and r["id"] // r["divisor"] == 3),
        ("id / divisor = 3 AND divisor <> 0", lambda r: r["divisor"] and r["id"] // r["divisor"] == 3),
        ("NOT (coalesce(message, '') <> '')", lambda r: r["message"] is None),
        ("epoch(at) < 10 OR id IN (divisor, 4000)", lambda r: r["id"] < 10 or r["id"] == 4000),
        ("date_trunc('hour', at) = '1970-01-01 01:00'", lambda r: 3600 <= r["id"] < 7200),
        ("1 = 1", lambda _: True),
        ("1 = 2", lambda _: False),
    ],
)  # fmt: skip
def test_a_scan_returns_the_rows_for_which_an_expression_holds(
    table: Table, where: str, holds: Any
) -> None:
    assert table.scan(["id"], where).to_table()["id"].to_pylist() == expected(holds)
    assert table.scan([], where).to_table().num_rows == len(expected(holds))


def test_a_part_that_compares_a_column_with_a_value_still_prunes(table: Table) -> None:
    for where in (
        "id < 700 AND length(message) > 3",
        "at < TIMESTAMPTZ '1970-01-01T00:11:40Z' AND length(message) > 3",
        "level = lower(level) AND id < 350 * 2",
    ):
        scan = table.scan(["id"], where)
        scan.to_table()
        assert (scan.report.row_groups, scan.report.row_groups_skipped) == (12, 10), where


def test_what_cannot_be_computed_names_fragment_and_row(table: Table) -> None:
    with refuses(DataError, "row 1: where: 'id / divisor': divide by zero"):
        table.scan(["id"], "id / divisor = 3").to_table()
    with refuses(DataError, "row 1,001: where: 'id / divisor': divide by zero"):
        table.scan(["id"], "id > 996 AND id / divisor = 3").to_table()


@pytest.mark.parametrize("policy", [None, RowPolicy(RowKind.LAST)])
def test_rows_are_deleted_by_expressions_and_deleted_rows_are_not_computed(
    policy: RowPolicy | None, tmp_path: Path
) -> None:
    rows = rows_of(1000)
    table = Table.create(str(tmp_path / "t"), rows, "id", IngestOptions(rows=policy))
    table.append(rows.slice(100, 10))
    assert table.delete("lower(level) = 'warn' AND id % 2 = 0").rows > 0
    copies = 1 if policy else 2
    left = [n for n in range(1000) if not (n % 3 == 1 and n % 2 == 0)]
    found = table.scan(["id"]).to_table()["id"].to_pylist()
    assert found == [n for n in left for _ in range(copies if 100 <= n < 110 else 1)]
    with refuses(DataError, "where: 'id / divisor': divide by zero"):
        table.delete("id / divisor = 3")
    table.delete("divisor = 0")
    assert table.scan(["id"], "id / divisor >= 0").to_table().num_rows == len(
        [n for n in found if n % 5]
    )


def test_renamed_columns_are_computed_by_their_shown_names(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), rows_of(100), "id")
    table.alter(renames={"divisor": "by"})
    found = table.scan(["id"], 'id % 10 = "by" + 1').to_table()["id"].to_pylist()
    assert found == [n for n in range(100) if n % 10 == n % 5 + 1]
