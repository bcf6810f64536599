"""Parquet files on S3 of which only some columns are read."""

from __future__ import annotations

import datetime as dt
import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import compactor.pipelines  # noqa: F401 - serves s3://
from compactor.errors import InputError
from compactor.files.read import open_table_file
from compactor.stores.open import open_store
from tests.faults import IgnoreConditions, calls
from tests.support.s3_server import Request, S3Server
from tests.support.wording import refuses

ROWS = 400_000


def file_of(**options: Any) -> tuple[pa.Table, bytes]:
    """A table with columns of many bytes and of few, and its file, which is too large to copy at once."""
    rng = np.random.default_rng(7)
    heavy = rng.integers(0, 1 << 62, ROWS)
    table = pa.table(
        {
            "heavy": heavy,
            "few": np.arange(ROWS) % 7,
            "more": heavy[::-1],
            "at": pa.array([dt.datetime(2024, 1, 1)] * ROWS, pa.timestamp("us")),
            "nested": pa.StructArray.from_arrays([pa.array(np.arange(ROWS) % 3)], ["x.y"]),
            "name": [f"name {n % 9}" for n in range(ROWS)],
        }
    )
    pq.write_table(table, file := io.BytesIO(), row_group_size=ROWS // 2, **options)
    return table, file.getvalue()


def read_bytes(requests: list[Request]) -> int:
    """The bytes that ranged GETs asked for."""
    found = 0
    for request in requests:
        assert request.range is not None
        first, last = request.range.removeprefix("bytes=").split("-")
        found += int(last) - int(first) + 1
    return found


@pytest.mark.parametrize("options", [{}, {"use_deprecated_int96_timestamps": True}])
@pytest.mark.parametrize(
    "columns", [{"few"}, {"nested"}, {"few", "name"}, {"at", "more"}, {"none"}, set()]
)
def test_only_the_columns_that_are_read_are_fetched(
    s3_server: S3Server, s3_bucket: str, columns: set[str], options: dict[str, Any]
) -> None:
    table, data = file_of(**options)
    open_store(f"s3://{s3_bucket}").create("a.parquet", data)
    s3_server.reset()
    with open_table_file(f"s3://{s3_bucket}/a.parquet", columns=columns) as file:
        rows = pa.Table.from_batches(file, file.schema)
    wanted = [name for name in table.column_names if name in columns] or ["heavy"]
    assert rows.equals(table.select(wanted))
    assert len(s3_server.requests("HEAD")) == 1
    gets = s3_server.requests("GET")
    if columns & {"few", "nested", "name"}:
        assert read_bytes(gets) < len(data) * 0.6
    assert all(request.if_match for request in gets if request.range is not None)


@pytest.mark.parametrize("columns", [None, {"heavy", "more", "few"}])
def test_a_file_of_which_most_is_read_is_copied_by_one_get(
    s3_server: S3Server, s3_bucket: str, columns: set[str] | None
) -> None:
    table, data = file_of()
    open_store(f"s3://{s3_bucket}").create("a.parquet", data)
    s3_server.reset()
    with open_table_file(f"s3://{s3_bucket}/a.parquet", columns=columns) as file:
        rows = pa.Table.from_batches(file, file.schema)
    assert rows.equals(
        table.select([n for n in table.column_names if columns is None or n in columns])
    )
    whole = [request for request in s3_server.requests("GET") if request.range is None]
    assert len(whole) == 1


@pytest.mark.parametrize("knows_conditions", [True, False])
def test_an_object_replaced_between_its_ranges_is_refused(
    s3_server: S3Server, s3_bucket: str, knows_conditions: bool
) -> None:
    _, data = file_of()
    _, other = file_of(compression="zstd")
    store = open_store(f"s3://{s3_bucket}")
    store.create("a.parquet", data)
    if not knows_conditions:
        s3_server.faults.add(IgnoreConditions(), at=calls("GET"))

    def replaced(request: Request) -> None:
        if request.method == "GET" and not store_has_changed:
            store_has_changed.append(True)
            store.delete("a.parquet")
            store.create("a.parquet", other)

    store_has_changed: list[bool] = []
    s3_server.guard = replaced
    with refuses(InputError, "a.parquet", "was replaced"):
        open_table_file(f"s3://{s3_bucket}/a.parquet", columns={"few"})
    assert store_has_changed


@pytest.mark.parametrize("damage", ["footer", "length", "cut"])
def test_a_damaged_file_is_refused_as_any_other(s3_bucket: str, damage: str) -> None:
    _, data = file_of()
    match damage:
        case "footer":
            data = data[:-200] + bytes(192) + data[-8:]
        case "length":
            data = data[:-8] + (1 << 31).to_bytes(4, "little") + data[-4:]
        case "cut":
            data = data[: len(data) - 1000]
    open_store(f"s3://{s3_bucket}").create("a.parquet", data)
    with refuses(InputError, "a.parquet"):
        open_table_file(f"s3://{s3_bucket}/a.parquet", columns={"few"})
