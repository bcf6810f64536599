"""What is the same for all formats: paths, compression, progress, damage, memory."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from compactor.errors import InputError
from compactor.files.read import open_table_file
from tests.files.reading import put, refusal, table_of
from tests.support.arrow_pool import counting_pool

TEXTS = {"ndjson": b'{"a":1}\n{"a":22}\n', "csv": b"a\n1\n22\n"}


def test_a_missing_file_a_folder_and_an_unknown_ending_are_refused(tmp_path: Path) -> None:
    refusal(str(tmp_path / "no.csv"))
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    refusal(str(folder))
    refusal(put(tmp_path, "a.xlsx", b""))
    refusal(put(tmp_path, "a.parquet.gz", b""))


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.csv")
    refusal(str(tmp_path / "a.csv"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", "a\n1\n")
    Path(path).chmod(0)
    assert "permission denied" in refusal(path)


@pytest.mark.parametrize("name", TEXTS)
def test_compressed_text_is_read_and_members_and_frames_follow_each_other(
    tmp_path: Path, name: str
) -> None:
    text = TEXTS[name]
    half = len(text) // 2
    for ending, compress in ((".gz", gzip.compress), (".ZST", zstandard.compress)):
        content = compress(text[:half]) + compress(text[half:])
        assert table_of(put(tmp_path, f"a.{name}{ending}", content))["a"].to_pylist() == [1, 22]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_compressed_text_that_is_cut_off_or_damaged_or_not_compressed_is_refused(
    tmp_path: Path, name: str, ending: str
) -> None:
    compress = gzip.compress if ending == ".gz" else zstandard.compress
    noise = os.urandom(300_000).hex().encode()
    rows = b'{"a":"%s"}\n' % noise if name == "ndjson" else b"a\n%s\n" % noise
    whole = compress(rows)
    path = put(tmp_path, f"a.{name}{ending}", whole[:-9])
    refusal(path)
    path = put(tmp_path, f"a.{name}{ending}", rows)
    refusal(path)
    path = put(tmp_path, f"a.{name}{ending}", whole + b"junk")
    assert f"a.{name}{ending}: " in refusal(path)


def _written(folder: Path, name: str, rows: int = 50_000) -> str:
    table = pa.table({"a": range(rows), "b": [f"text {i % 99}" for i in range(rows)]})
    path = str(folder / name)
    if name == "a.parquet":
        pq.write_table(table, path, row_group_size=rows // 3)
    elif name == "stream.arrow":
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=10_000)
    elif name == "file.feather":
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=10_000)
    elif name == "a.csv":
        Path(path).write_text("a,b\n" + "".join(f"{i},text {i % 99}\n" for i in range(rows)))
    else:
        lines = (f'{{"a":{i},"b":"text {i % 99}"}}\n' for i in range(rows))
        Path(path).write_bytes(gzip.compress("".join(lines).encode()))
    return path


ALL = ["a.parquet", "stream.arrow", "file.feather", "a.csv", "a.ndjson.gz"]


@pytest.mark.parametrize("name", ALL)
def test_batches_are_of_the_size_asked_for_and_progress_ends_at_the_files_size(
    tmp_path: Path, name: str
) -> None:
    path = _written(tmp_path, name)
    seen, rows = [], 0
    with open_table_file(path, batch_bytes=50_000) as file:
        assert file.bytes_total == Path(path).stat().st_size
        for batch in file:
            assert batch.nbytes < 100_000
            assert batch.schema == file.schema
            seen.append(file.bytes_consumed)
            rows += batch.num_rows
        assert rows == 50_000
        assert seen == sorted(seen)
        assert file.bytes_consumed == file.bytes_total
    file.close()


def test_the_first_pass_tells_how_far_it_is(tmp_path: Path) -> None:
    for name in ("a.csv", "a.ndjson.gz"):
        heard: list[int] = []
        path = _written(tmp_path, name)
        with open_table_file(path, batch_bytes=50_000, on_scan=heard.append) as file:
            assert heard == sorted(heard)
            assert heard[-1] == file.bytes_total


@pytest.mark.parametrize("name", ["a.parquet", "stream.arrow", "file.feather"])
@pytest.mark.parametrize("damage", ["empty", "cut off", "other", "flipped"])
def test_a_damaged_columnar_file_is_refused_or_read_without_a_crash(
    tmp_path: Path, name: str, damage: str
) -> None:
    path = Path(_written(tmp_path, name, rows=3_000))
    content = path.read_bytes()
    if damage == "flipped":
        for position in range(0, len(content), 97):
            flipped = bytearray(content)
            flipped[position] ^= 0xFF
            path.write_bytes(flipped)
            try:
                table_of(str(path))
            except InputError as error:
                assert str(error).startswith(str(path))
                assert "\n" not in str(error)
        return
    path.write_bytes({"empty": b"", "cut off": content[:-50], "other": b"a,b\n1,2\n"}[damage])
    if (name, damage) == ("stream.arrow", "cut off"):
        path.write_bytes(content[: len(content) // 2])
    refusal(str(path))


def test_an_ipc_file_that_lies_about_its_text_is_refused(tmp_path: Path) -> None:
    offsets = pa.py_buffer(b"\0\0\0\0\1\0\0\0")
    lie = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff")])
    batch = pa.RecordBatch.from_arrays([lie], names=["a"])
    path = str(tmp_path / "a.arrow")
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    refusal(path)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(table, tmp_path / "a.parquet")
    refusal(str(tmp_path / "a.parquet"))


@pytest.mark.long
@pytest.mark.parametrize("name", ["a.ndjson", "a.csv"])
def test_memory_is_bounded_by_the_batch_size_and_not_by_the_file(tmp_path: Path, name: str) -> None:
    line = {
        "a.ndjson": '{"t":"2024-01-01T00:00:00Z","n":123,"m":"%s"}\n' % ("log " * 20),
        "a.csv": "2024-01-01T00:00:00Z,123,%s\n" % ("log " * 20),
    }[name].encode()
    path = tmp_path / name
    with path.open("wb") as file:
        file.write(b"" if name == "a.ndjson" else b"t,n,m\n")
        for _ in range(200):
            file.write(line * ((1 << 20) // len(line)))
    tracemalloc.start()
    with counting_pool() as pool, open_table_file(str(path), batch_bytes=1 << 20) as batches:
        for _ in batches:
            pass
        assert batches.bytes_total > 190 << 20
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 1 << 20 < pool.max_memory() + peak < 50 << 20


@pytest.mark.parametrize("inner", [False, True])
def test_a_column_name_that_is_not_utf8_is_refused(tmp_path: Path, inner: bool) -> None:
    dtype = pa.struct([("name", pa.int64())])
    column = pa.array([{"name": 1}], dtype)
    if inner:
        column = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), column)
    sink = pa.BufferOutputStream()
    table = pa.table({"k": [1], "a" if inner else "name": column if inner else [1]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content = sink.getvalue().to_pybytes().replace(b"name", b"n\xffme")
    refusal(put(tmp_path, "a.arrow", content))


def _arrow_file(path: Path, value: pa.Array) -> str:
    """`QQQQ` in it is no UTF-8."""
    with pa.ipc.new_file(path, pa.schema([("k", value.type)])) as writer:
        writer.write_table(pa.table({"k": value}))
    path.write_bytes(path.read_bytes().replace(b"QQQQ", b"Q\xff\xfeQ"))
    return str(path)


@pytest.mark.parametrize(
    "dtype",
    [
        pa.string(), pa.large_string(), pa.string_view(), pa.list_(pa.string()), pa.json_(),
        pa.map_(pa.string(), pa.string()), pa.dictionary(pa.int8(), pa.string()),
    ],
    ids=str,
)  # fmt: skip
def test_text_that_is_no_utf8_is_told_with_its_column(tmp_path: Path, dtype: pa.DataType) -> None:
    text = "QQQQ, of more than twelve characters"
    value = [text] if pa.types.is_list(dtype) else [(text, "")] if pa.types.is_map(dtype) else text
    array = pa.array(["x", text]).dictionary_encode() if pa.types.is_dictionary(dtype) else None
    path = _arrow_file(tmp_path / "a.arrow", array or pa.array([value], dtype))
    refusal(path)


def test_a_time_zone_that_is_no_utf8_is_told_with_its_column(tmp_path: Path) -> None:
    path = _arrow_file(tmp_path / "a.arrow", pa.array([1], pa.timestamp("us", "QQQQ")))
    refusal(path)
