"""The libraries of other engines read copies back, row for row."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.table.snapshots import Operation

from compactor import Table
from compactor.lakes.lake import LakeKind
from tests.read.test_changes import FULL, created
from tests.support.lakes import Copy, rows_of

_STRUCT: Final = pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.list_(pa.string()))])


def all_types() -> pa.Table:
    """Rows of every type that all lakes have, each with a null."""
    at = dt.datetime(2026, 11, 27, 10, 30, 0, 250_000)
    values: dict[str, tuple[Any, pa.DataType]] = {
        "flag": (True, pa.bool_()),
        "i8": (-128, pa.int8()),
        "u8": (255, pa.uint8()),
        "u64": (2**64 - 1, pa.uint64()),
        "i64": (-(2**63), pa.int64()),
        "half": (1.5, pa.float16()),
        "double": (0.1, pa.float64()),
        "amount": (Decimal("12.345"), pa.decimal128(9, 3)),
        "day": (dt.date(1969, 7, 20), pa.date32()),
        "day64": (dt.date(2400, 2, 29), pa.date64()),
        "utc": (at.replace(tzinfo=dt.UTC), pa.timestamp("ms", "UTC")),
        "berlin": (at.replace(tzinfo=dt.UTC), pa.timestamp("us", "Europe/Berlin")),
        "local": (at, pa.timestamp("us")),
        "text": ("zwölf\n", pa.large_string()),
        "code": ("red", pa.dictionary(pa.int8(), pa.string())),
        "bytes": (b"\0\xff", pa.binary()),
        "fixed": (b"abcd", pa.binary(4)),
        "list": ([1, None, 3], pa.list_(pa.int64())),
        "pair": ([1.0, 2.0], pa.list_(pa.float32(), 2)),
        "record": ({"a": 1, "b": ["x", None]}, _STRUCT),
        "records": ([{"a": 2, "b": []}], pa.list_(_STRUCT)),
        "map": ([("x", 1), ("y", None)], pa.map_(pa.string(), pa.int32())),
    }
    columns = {name: pa.array([value, None], dtype) for name, (value, dtype) in values.items()}
    return pa.table({"k": [2, 1], **columns})


@pytest.fixture
def table() -> Table:
    """A table with deleted rows, a compaction, and columns that only some fragments have."""
    found = created(pa.table({"k": list(range(10, 30))}))
    found.delete("k BETWEEN 12 AND 14")
    found.compact(policy=FULL)
    found.append(all_types())
    found.delete("k = 20")
    return found


def without_lists_of_structs(rows: pa.Table) -> list[dict[str, Any]]:
    kept = rows.drop_columns(["records"]) if "records" in rows.column_names else rows
    return sorted((plain(row) for row in kept.to_pylist()), key=lambda row: row["k"])


def plain(value: Any) -> Any:
    """The value in the form in which libraries that read it differ the least."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC)
    if isinstance(value, dt.datetime):
        return value
    return int(value) if isinstance(value, Decimal) and value == int(value) else value


def published(table: Table, folder: Path, kind: LakeKind) -> Copy:
    copy = Copy(table._log, folder / "copy", kind)
    copy.publish()
    return copy


def expected(table: Table) -> list[dict[str, Any]]:
    return without_lists_of_structs(table.scan().to_table())


def test_deltalake_and_polars_read_delta(table: Table, tmp_path: Path) -> None:
    copy = published(table, tmp_path, LakeKind.DELTA)
    read = copy.delta().to_pyarrow_table()
    assert without_lists_of_structs(read) == expected(table)
    by_polars = pl.read_delta(str(tmp_path / "copy")).to_arrow()
    names = [n for n in read.column_names if n not in ("map", "pair")]
    assert without_lists_of_structs(by_polars.select(names)) == without_lists_of_structs(
        read.select(names)
    )


def test_pyiceberg_and_polars_read_iceberg(table: Table, tmp_path: Path) -> None:
    copy = published(table, tmp_path, LakeKind.ICEBERG)
    read = copy.iceberg().scan().to_arrow()
    assert without_lists_of_structs(read) == expected(table)
    lazy = pl.scan_iceberg(copy.iceberg()).select("k", "text", "u64", "utc", "list")
    by_polars = lazy.collect().to_arrow()
    assert without_lists_of_structs(by_polars) == without_lists_of_structs(
        read.select(by_polars.column_names)
    )


@pytest.mark.parametrize("kind", [LakeKind.DELTA, LakeKind.ICEBERG])
def test_days_and_times_outside_of_the_years_1_to_9999_are_published_without_bounds(
    kind: LakeKind, tmp_path: Path
) -> None:
    values = [-(2**62), -1, None, 2**62]
    odd = {
        "utc": pa.array(values).cast(pa.timestamp("us", "UTC")),
        "local": pa.array(values).cast(pa.timestamp("us")),
        "day": pa.array([-3_000_000, 0, None, 3_000_000], pa.int32()).cast(pa.date32()),
    }
    rows = pa.table({"k": [1, 2, 3, 4], **odd})
    copy = published(created(rows), tmp_path, kind)
    if kind is LakeKind.DELTA:
        read = copy.delta().to_pyarrow_table()
        actions = copy.delta_actions(copy.delta().version())
        [stats] = [json.loads(a["add"]["stats"]) for a in actions if "add" in a]
        bounds = stats["minValues"].keys() | stats["maxValues"].keys()
        nulls = stats["nullCount"]
    else:
        read = copy.iceberg().scan().to_arrow()
        [metrics] = copy.iceberg().inspect.files()["readable_metrics"].to_pylist()
        bounds = {name for name, of in metrics.items() if of["lower_bound"] or of["upper_bound"]}
        nulls = {name: of["null_value_count"] for name, of in metrics.items()}
    assert read.equals(rows)
    assert bounds == {"k"}
    assert nulls == {"k": 0, "utc": 1, "local": 1, "day": 1}
    assert copy.publish().added == 0


def test_duckdb_and_polars_read_parquet(table: Table, tmp_path: Path) -> None:
    published(table, tmp_path, LakeKind.PARQUET)
    pattern = str(tmp_path / "copy" / "*.parquet")
    db = duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    by_duckdb = db.sql(f"FROM read_parquet('{pattern}')").to_arrow_table()
    names = [name for name in by_duckdb.column_names if name not in ("half", "map")]
    wanted = table.scan(columns=names).to_table()
    assert without_lists_of_structs(by_duckdb.select(names)) == without_lists_of_structs(wanted)
    by_polars = pl.read_parquet(pattern).to_arrow()
    names = [name for name in names if name not in ("pair", "day64", "code")]
    assert without_lists_of_structs(by_polars.select(names)) == without_lists_of_structs(
        wanted.select(names)
    )


def test_duckdb_reads_the_newest_list_as_the_page_says(tmp_path: Path) -> None:
    table = created(pa.table({"k": [1, 2, 3]}))
    copy = published(table, tmp_path, LakeKind.PARQUET)
    table.append(pa.table({"k": [4]}))
    copy.publish()
    page = Path(__file__).parents[2] / "docs" / "how-to" / "lakes.md"
    sql = page.read_text().partition("```sql\n")[2].partition("```")[0]
    db = duckdb.connect()
    for statement in sql.replace("lake/logs", str(tmp_path / "copy")).split(";")[:-1]:
        found = db.execute(statement)
    assert found.fetchone() == (4,)


def test_the_list_names_files_rows_and_sizes(tmp_path: Path) -> None:
    table = created(pa.table({"k": [1, 2, 3]}))
    copy = published(table, tmp_path, LakeKind.PARQUET)
    [*_, path] = sorted((tmp_path / "copy").glob("_published/*.json"))
    document = json.loads(path.read_text())
    [file] = copy.files()
    assert document["files"] == [{"name": file.name, "rows": 3, "size_bytes": file.stat().st_size}]
    assert document["table_version"] == table.version


def test_a_replacement_counts_its_files_and_rows_as_pyiceberg_does_for_overwrites(
    tmp_path: Path,
) -> None:
    """Holds what `replace` relies on in pyiceberg beyond its public interface."""
    table = created(pa.table({"k": [1, 2, 3]}))
    copy = published(table, tmp_path, LakeKind.ICEBERG)
    table.append(pa.table({"k": [4]}))
    copy.publish()
    table.compact(policy=FULL)
    copy.publish()
    snapshot = copy.iceberg().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation is Operation.REPLACE
    said = snapshot.summary.additional_properties
    wanted = {
        "added-data-files": "1", "deleted-data-files": "2", "added-records": "4",
        "deleted-records": "4", "total-data-files": "1", "total-records": "4",
    }  # fmt: skip
    assert {name: said.get(name) for name in wanted} == wanted
    assert copy.iceberg().metadata.format_version == 2
    assert rows_of(copy.iceberg().scan().to_arrow()) == rows_of(table.scan().to_table())
