"""Parquet and Arrow files as other writers and older ones make them: what is in them comes back."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor import Policy, Strategy, Table
from tests.files.reading import refusal, table_of

MOMENTS = [datetime.datetime(2024, 1, 1), None, datetime.datetime(1600, 2, 29, 23, 59, 59)]
COLUMNS: dict[str, pa.Array] = {
    "key": pa.array([1, 2, 3], pa.int64()),
    "unsigned": pa.array([2**64 - 1, None, 0], pa.uint64()),
    "unsigned32": pa.array([2**32 - 1, None, 0], pa.uint32()),
    "small": pa.array([-128, None, 127], pa.int8()),
    "float": pa.array([-0.0, None, float("inf")], pa.float32()),
    "half": pa.array([-0.0, None, 65504.0], pa.float16()),
    "flag": pa.array([True, None, False]),
    "text": pa.array(["a", None, ""]),
    "bytes": pa.array([b"ab", None, b"\xff\x00"], pa.binary(2)),
    "decimal": pa.array([Decimal("-1.23"), None, Decimal("9.99")], pa.decimal128(3, 2)),
    "wide": pa.array([Decimal("-1.23"), None, Decimal("9.99")], pa.decimal128(30, 2)),
    "moment": pa.array(MOMENTS, pa.timestamp("us")),
    "list": pa.array([[1, None], None, []], pa.list_(pa.int32())),
    "lists": pa.array([[["x"], None], [], None], pa.list_(pa.list_(pa.string()))),
    "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int32())),
    "struct": pa.array([{"a": 1, "b": [{"c": None}]}, None, {"a": None, "b": []}]),
    "category": pa.array(["x", None, "x"]).dictionary_encode(),
}
ROWS = pa.table(COLUMNS)
PARQUET: dict[str, dict[str, Any]] = {
    "parquet 1": {"version": "1.0"},
    "pages of version 2": {"data_page_version": "2.0", "compression": "gzip"},
    "no dictionary": {"use_dictionary": False},
    "lists of two levels": {"use_compliant_nested_type": False},
    "decimals as integers": {"store_decimal_as_integer": True},
    "small pages and groups": {"data_page_size": 8, "row_group_size": 2},
    "checksums and indexes": {"write_page_checksum": True, "write_page_index": True},
    "old codec": {"compression": "snappy"},
    "brotli": {"compression": "brotli"},
    "lz4": {"compression": "lz4"},
    "no statistics, no schema of Arrow": {"write_statistics": False, "store_schema": False},
    "INT96": {"use_deprecated_int96_timestamps": True},
    "delta encodings": {
        "use_dictionary": False,
        "column_encoding": {
            "key": "DELTA_BINARY_PACKED",
            "text": "DELTA_BYTE_ARRAY",
            "flag": "RLE",
            "float": "BYTE_STREAM_SPLIT",
            "bytes": "BYTE_STREAM_SPLIT",
            "unsigned32": "DELTA_BINARY_PACKED",
        },
    },
    "delta lengths": {
        "use_dictionary": False,
        "column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY"},
    },
}


@pytest.mark.parametrize("name", PARQUET)
def test_parquet_of_every_writer_goes_round(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.parquet"
    options = {"store_schema": True, **PARQUET[name]}
    pq.write_table(ROWS, path, **options)
    read = pq.read_table(path, coerce_int96_timestamp_unit="us")
    assert table_of(str(path)).to_pylist() == read.to_pylist()
    table = Table.create(tmp_path / "table", path, "key")
    table.append(path)
    table.compact(policy=Policy(strategy=Strategy.FULL))
    assert not table.verify().faults
    for again in ("b.parquet", "b.arrow"):
        table.refresh()
        table.scan().to_file(tmp_path / again)
        found = Table.create(tmp_path / f"of {again}", tmp_path / again).scan().to_table()
        assert found.schema == table.schema
        expected = [row for row in read.to_pylist() for _ in range(2)]
        assert found.to_pylist() == expected


@pytest.mark.parametrize(
    "options",
    [
        {"use_legacy_format": True, "metadata_version": pa.ipc.MetadataVersion.V4},
        {"metadata_version": pa.ipc.MetadataVersion.V4},
        {"compression": "lz4"},
        {"compression": "zstd"},
    ],
)
def test_arrow_of_every_version_goes_round(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "a.arrow"
    for new in (pa.ipc.new_file, pa.ipc.new_stream):
        with new(path, ROWS.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
            writer.write_table(ROWS.slice(0, 2))
            writer.write_table(ROWS.slice(2, 1))
        assert table_of(str(path)).to_pylist() == ROWS.to_pylist()


def test_dictionaries_that_a_stream_replaces_count_for_their_batches(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    parts = [
        pa.record_batch({"a": pa.array(texts).dictionary_encode()})
        for texts in (["x", "y"], ["z", "x"])
    ]
    with pa.ipc.new_stream(path, parts[0].schema) as writer:
        for part in parts:
            writer.write_batch(part)
    assert table_of(str(path))["a"].to_pylist() == ["x", "y", "z", "x"]


@pytest.mark.parametrize(
    ("column", "cause"),
    [
        (pa.array([1, 1]).dictionary_encode(), None),
        (pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])]), "union"),
        (pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array([1])), "run_end"),
    ],
)
def test_types_that_have_no_form_are_refused_by_the_name_of_their_column(
    tmp_path: Path, column: pa.Array, cause: str | None
) -> None:
    path = tmp_path / "a.arrow"
    rows = pa.record_batch({"k": pa.array([1, 2]), "odd": column})
    with pa.ipc.new_file(path, rows.schema) as writer:
        writer.write_batch(rows)
    if cause is None:
        assert table_of(str(path)).to_pylist() == rows.to_pylist()
        return
    with pytest.raises(
        Exception, match=f"column 'odd': type .*{cause}.* is not supported"
    ) as caught:
        Table.create(tmp_path / "table", path, "k")
    assert str(caught.value).startswith(str(path))


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_arrays([pa.array([1])] * 2, names=["a", "a"]), path)
    assert "two columns are named 'a'" in refusal(str(path))
