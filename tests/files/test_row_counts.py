"""Every row that a file says it has is read, or the file is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.errors import MachineError
from tests.files.reading import put, refusal, schema, table_of
from tests.support.wording import refuses

ROWS = pa.table({"k": [1, 2, 3, 4, 5], "b": [1.0, 2.0, 3.0, 4.0, 5.0], "c": list("abcde")})
PAGE_OF_FIVE = re.compile(rb"\x15\x00\x15..?\x15..?\x2c\x15\x0a", re.DOTALL)
"""A header of a data page in Thrift's compact protocol, up to the number of its values."""
FIVE_ROWS = b"\x16\x0a\x19"
"""The footer's number of rows, and the start of its list of row groups."""


def parquet(groups: int = 1) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink, ROWS.schema, use_dictionary=False, compression="none", write_statistics=False
    ) as writer:
        for _ in range(groups):
            writer.write_table(ROWS, row_group_size=ROWS.num_rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


@pytest.mark.parametrize("values", [0, 2, 4])
@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
def test_a_column_chunk_shorter_than_its_row_group_is_named(
    tmp_path: Path, place: int, values: int, batch_bytes: int
) -> None:
    data = bytearray(parquet(groups=2))
    page = list(PAGE_OF_FIVE.finditer(data))[place]
    data[page.end() - 1] = 2 * values
    message = refusal(put(tmp_path, "a.parquet", bytes(data)), batch_bytes=batch_bytes)
    assert message.startswith(f"a.parquet, row group {place // 3}, column {'kbc'[place % 3]!r}: ")


def test_a_page_that_is_not_what_its_checksum_says_is_refused(tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(ROWS, sink, use_dictionary=False, compression="none", write_page_checksum=True)
    data = sink.getvalue().to_pybytes()
    assert table_of(put(tmp_path, "a.parquet", data)).equals(ROWS)
    four, five = (number.to_bytes(8, "little") for number in (4, 5))
    refusal(put(tmp_path, "a.parquet", data.replace(four, five, 1)))


def test_a_footer_with_another_number_of_rows_than_its_row_groups_is_refused(
    tmp_path: Path,
) -> None:
    data = parquet()
    path = put(tmp_path, "a.parquet", data.replace(FIVE_ROWS, b"\x16\x0e\x19", 1))
    refusal(path)


def ipc_stream(*, legacy: bool = False) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(use_legacy_format=legacy)
    with pa.ipc.new_stream(sink, ROWS.schema, options=options) as writer:
        writer.write_table(ROWS)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def test_a_stream_that_ends_before_its_end_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    data = ipc_stream()
    for size in range(8, len(data)):
        refusal(put(tmp_path, "a.arrow", data[:size]))
    refusal(put(tmp_path, "a.arrow", data[:-8]))
    assert table_of(put(tmp_path, "a.arrow", data)).equals(ROWS)


@pytest.mark.parametrize("legacy", [False, True])
def test_rows_behind_the_end_of_a_stream_are_not_passed_over(tmp_path: Path, legacy: bool) -> None:
    data = ipc_stream(legacy=legacy)
    refusal(put(tmp_path, "a.arrow", data + data))
    assert table_of(put(tmp_path, "a.arrow", data + bytes(8))).equals(ROWS)


def test_a_want_of_memory_is_not_taken_for_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr("compactor.files.columnar.canonical", no_memory)
    path = put(tmp_path, "a.parquet", parquet())
    with refuses(MachineError):
        table_of(path)


def test_streams_of_before_arrow_0_15_are_read(tmp_path: Path) -> None:
    data = ipc_stream(legacy=True)
    assert table_of(put(tmp_path, "a.arrow", data)).equals(ROWS)
    refusal(put(tmp_path, "a.arrow", b"k,b\n1,2\n"))


def test_a_stream_without_batches_has_no_rows(tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema(a=pa.int64())):
        pass
    assert table_of(put(tmp_path, "a.arrow", sink.getvalue().to_pybytes())).num_rows == 0
