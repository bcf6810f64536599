"""Columns that a Parquet file has as codes are taken in as codes, and give the same rows and bytes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import compactor.write.ingest.files
from compactor import Table
from compactor.errors import InputError
from compactor.files.columnar import ParquetBatches
from compactor.files.parquet_codes import ANY_CODES, DictionaryPage, dictionary_page
from compactor.files.read import open_table_file
from compactor.files.source import sliced
from tests.support.tables import table_rows

ROWS = 9_000


def many_rows() -> pa.Table:
    return pa.table({
        "n": range(ROWS),
        "few": [f"value {n % 7}" for n in range(ROWS)],
        "nulls": [None if n % 3 else f"value {n % 11}" for n in range(ROWS)],
        "binary": pa.array([bytes([n % 5]) for n in range(ROWS)], pa.binary()),
        "some": [f"user {n * n % 2903}" for n in range(ROWS)],
        "late": [f"value {n % 3 if n < 4_000 else n}" for n in range(ROWS)],
        "all": [f"text {n}" for n in range(ROWS)],
        "none": pa.nulls(ROWS, pa.string()),
    })  # fmt: skip


def coded_names(batch: pa.RecordBatch) -> set[str]:
    return {f.name for f in batch.schema if pa.types.is_dictionary(f.type)}


def read(path: Path, batch_bytes: int = 1 << 20) -> list[pa.RecordBatch]:
    with ParquetBatches(str(path), batch_bytes, max_codes=ANY_CODES) as file:
        return list(file)


def test_a_row_group_comes_in_batches_of_equal_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": range(ROWS)}), tmp_path / "x.parquet", use_dictionary=False)
    with pq.ParquetFile(tmp_path / "x.parquet") as file:
        size = file.metadata.row_group(0).total_byte_size
    assert [b.num_rows for b in read(tmp_path / "x.parquet", 9 * size // 10)] == [4_500, 4_500]
    assert [b.num_rows for b in sliced(many_rows().to_batches()[0], 1 << 30)] == [ROWS]
    batch = pa.RecordBatch.from_pydict({"n": pa.array(range(ROWS), pa.int64())})
    assert [b.num_rows for b in sliced(batch, 7 * ROWS)] == [4_500, 4_500]


def plain_table(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    columns = [
        pa.chunked_array([b.column(n).cast(schema.field(n).type) for b in batches])
        for n in schema.names
    ]
    return pa.table(columns, schema=schema)


@pytest.mark.parametrize("batch_bytes", [1 << 12, 1 << 16, 1 << 24])
@pytest.mark.parametrize("row_group_rows", [1_000, ROWS])
def test_repeated_strings_come_as_codes_with_the_same_values(
    tmp_path: Path, batch_bytes: int, row_group_rows: int
) -> None:
    rows = many_rows()
    pq.write_table(rows, tmp_path / "x.parquet", row_group_size=row_group_rows)
    batches = read(tmp_path / "x.parquet", batch_bytes)
    assert {"few", "nulls", "binary"} <= coded_names(batches[0])
    assert ("some" in coded_names(batches[0])) == (row_group_rows == ROWS)
    assert not {"n", "all"} & coded_names(batches[0])
    assert plain_table(batches, rows.schema) == rows
    with open_table_file(str(tmp_path / "x.parquet")) as file:
        assert not any(coded_names(batch) for batch in file)


def test_a_dictionary_with_a_value_twice_is_read_as_it_means(tmp_path: Path) -> None:
    """Arrow by itself removes a value from the dictionary, and leaves the codes, which then mean others."""
    rows = pa.table({"s": ["qaq", "qaq", "qbq", "qcq", "qbq", "qcq", "qaq"] * 300})
    written = io.BytesIO()
    pq.write_table(rows, written, compression="none", write_statistics=False)
    forged = written.getvalue()
    assert forged.count(b"qbq") == 1
    path = tmp_path / "x.parquet"
    path.write_bytes(forged.replace(b"qbq", b"qaq"))
    meant = [text.replace("b", "a") for text in rows["s"].to_pylist()]
    alone = pq.read_table(path, read_dictionary=["s"])["s"].chunk(0)
    assert alone.indices.to_pylist()[:4] == [0, 0, 1, 2] and len(alone.dictionary) == 2
    batches = read(path, 1 << 10)
    assert [v for batch in batches for v in batch["s"].to_pylist()] == meant
    assert not any(coded_names(batch) for batch in batches)


def test_a_footer_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    """Arrow ends the process if it is asked for the description of such a column."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"s": ["a", None] * 300}), path, store_schema=False)
    optional, required = b"\x15\x0c\x25\x02\x18\x01s", b"\x15\x0c\x25\x00\x18\x01s"
    assert path.read_bytes().count(optional) == 1
    path.write_bytes(path.read_bytes().replace(optional, required))
    with pytest.raises(InputError, match="histogram"):
        read(path)


def test_a_file_without_columns_is_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, 2]}).select([]), tmp_path / "x.parquet")
    assert sum(batch.num_columns for batch in read(tmp_path / "x.parquet")) == 0


def test_a_column_that_goes_over_to_plain_pages_is_read_whole(tmp_path: Path) -> None:
    values = [f"v{n % 8}" if n < 50_000 else f"{n}" for n in range(51_000)]
    rows = pa.table({"s": values})
    pq.write_table(
        rows, tmp_path / "x.parquet", dictionary_pagesize_limit=3_000, data_page_size=500
    )
    batches = read(tmp_path / "x.parquet", 1 << 13)
    assert plain_table(batches, rows.schema) == rows


@pytest.mark.parametrize("sort", ["n", "few,n", "some:desc,n"])
def test_codes_give_the_bytes_that_strings_give(
    tmp_path: Path, sort: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(many_rows(), path, row_group_size=2_000)
    coded = Table.create(tmp_path / "coded", path, sort)

    def plain(*args: Any, **options: Any) -> Any:
        return open_table_file(*args, **{**options, "max_codes": 0})

    monkeypatch.setattr(compactor.write.ingest.files, "open_table_file", plain)
    strings = Table.create(tmp_path / "strings", path, sort)
    written = [
        [file.read_bytes() for file in sorted((tmp_path / name).rglob("*.frag"))]
        for name in ("coded", "strings")
    ]
    assert written[0] and written[0] == written[1]
    assert coded.schema == strings.schema
    assert coded.verify().faults == []
    assert len(table_rows(coded._store)) == ROWS


def test_codes_of_a_stream_give_the_bytes_that_strings_give(tmp_path: Path) -> None:
    """Even if a dictionary has a value twice, a null, or values that no row has."""
    rows = many_rows().select(["n", "few", "some", "nulls"])
    Table.create(tmp_path / "strings", rows, "n")
    coded = Table.create(tmp_path / "coded", rows.slice(0, 0), "n")
    arrays = []
    for name in rows.column_names:
        array = rows[name].combine_chunks()
        if name != "n":
            codes = array.dictionary_encode()
            values = pa.concat_arrays(
                [pa.array(["unused", None]), codes.dictionary, codes.dictionary]
            )
            size = len(codes.dictionary)
            moved = pa.array([None if c is None else 2 + c + size * (row % 2)
                              for row, c in enumerate(codes.indices.to_pylist())], pa.int32())  # fmt: skip
            array = pa.DictionaryArray.from_arrays(moved, values)
        arrays.append(array)
    coded.append(pa.table(arrays, rows.column_names))
    written = [
        [file.read_bytes() for file in sorted((tmp_path / name).rglob("*.frag"))]
        for name in ("coded", "strings")
    ]
    assert written[0] == written[1]
    assert coded.schema == rows.schema


def test_the_size_of_a_dictionary_is_read_from_the_header_of_its_page() -> None:
    header = bytes.fromhex("150415aaf6121592b0044c15a2b301150012000028b52ffd")
    assert dictionary_page(header) == DictionaryPage(11_473, 155_029)
    for end in range(13):
        assert dictionary_page(header[:end]) is None
    data_page = bytes.fromhex("15001514151415002c150a150015061506")
    assert dictionary_page(data_page) is None


@settings(max_examples=300)
@given(st.binary(max_size=64))
def test_no_bytes_in_place_of_a_header_do_harm(data: bytes) -> None:
    page = dictionary_page(data)
    assert page is None or (isinstance(page.values, int) and isinstance(page.page_bytes, int))
