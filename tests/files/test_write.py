"""Sinks: what each format looks like, what it refuses, and that a file appears whole or not at all."""

from __future__ import annotations

import gzip
import json
import math
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from compactor.errors import InputError, JobError, UsageError
from compactor.files import sinks
from compactor.files.jsontext import json_lines
from compactor.files.write import SinkOptions, check_sink_path, open_table_sink
from tests.support.wording import refuses


def write(path: Path, table: pa.Table, rows_per_batch: int = 1000) -> bytes:
    with open_table_sink(str(path), table.schema) as sink:
        for batch in table.to_batches(rows_per_batch):
            sink.write(batch)
    return path.read_bytes()


def one(dtype: pa.DataType, *values: object) -> pa.Table:
    return pa.table({"a": pa.array(values, dtype)})


@pytest.mark.parametrize(
    ("column", "json_text", "cell"),
    [
        (pa.array([2**63 - 1]), "9223372036854775807", "9223372036854775807"),
        (pa.array([2**64 - 1], pa.uint64()), "18446744073709551615", "18446744073709551615"),
        (pa.array([1.0]), "1.0", "1.0"),
        (pa.array([0.1], pa.float32()), "0.1", "0.1"),
        (pa.array([1.5], pa.float16()), "1.5", "1.5"),
        (pa.array([math.nan]), "null", "nan"),
        (pa.array([-math.inf]), "null", "-inf"),
        (pa.array([True]), "true", "true"),
        (pa.array([1], pa.timestamp("us", "Europe/Paris")), '"1970-01-01T00:00:00.000001Z"', None),
        (pa.array([0], pa.timestamp("s")), '"1970-01-01T00:00:00"', "1970-01-01T00:00:00"),
        (pa.array([0], pa.date64()), '"1970-01-01"', "1970-01-01"),
        (pa.array([1], pa.time32("ms")), '"00:00:00.001"', "00:00:00.001"),
        (pa.array([5], pa.duration("ms")), "5", "5"),
        (
            pa.array([None, (-1, 2, -3_000_000_004)], pa.month_day_nano_interval()).slice(1),
            '"P-1M2DT-3.000000004S"',
            "P-1M2DT-3.000000004S",
        ),
        (pa.array([Decimal("1.50")], pa.decimal32(5, 2)), '"1.50"', "1.50"),
        (pa.array([b"a"]), '"YQ=="', '"YQ=="'),
        (pa.array(['q"\\\n\t\x01é😀']), '"q\\"\\\\\\n\\t\\u0001é😀"', '"q""\\\n\t\x01é😀"'),
        (pa.array([""]), '""', '""'),
        (pa.array(["x"]).dictionary_encode(), '"x"', '"x"'),
        (pa.array([[1, None], []]), "[1,null]", '"[1,null]"'),
        (pa.array([{"b": "x", "c": [0.5]}]), '{"b":"x","c":[0.5]}', None),
        (pa.array([{}], pa.struct([])), "{}", '"{}"'),
        (
            pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
            '[{"key":"k","value":1}]',
            '"[{""key"":""k"",""value"":1}]"',
        ),
    ],
)
def test_a_value_looks_like_this_in_json_and_csv(
    tmp_path: Path, column: pa.Array, json_text: str, cell: str | None
) -> None:
    table = pa.table({"a": column.slice(0, 1)})
    assert write(tmp_path / "a.ndjson", table).decode() == f'{{"a":{json_text}}}\n'
    json.loads((tmp_path / "a.ndjson").read_text())
    if cell is not None:
        assert write(tmp_path / "a.csv", table).decode() == f'"a"\n{cell}\n'


def test_nulls_are_null_in_json_and_empty_in_csv_at_any_offset(tmp_path: Path) -> None:
    columns = {
        "i": pa.array([0, 1, None]),
        "s": pa.array(["z", "", None]),
        "b": pa.array([b"zz", b"", None]),
        "l": pa.array([[9], [None], None]),
        "o": pa.array([{"x": 9}, {"x": None}, None]),
        "d": pa.array(["q", None, "r"]).dictionary_encode(),
        "n": pa.nulls(3),
    }
    batch = pa.table(columns).to_batches()[0].slice(1)
    assert json_lines(batch).decode().splitlines() == [
        '{"i":1,"s":"","b":"","l":[null],"o":{"x":null},"d":null,"n":null}',
        '{"i":null,"s":null,"b":null,"l":null,"o":null,"d":"r","n":null}',
    ]
    text = write(tmp_path / "a.csv", pa.Table.from_batches([batch])).decode()
    assert text.splitlines()[1:] == ['1,"","","[null]","{""x"":null}",,', ',,,,,"r",']


def test_maps_are_objects_for_eyes_and_lists_for_reading_back(tmp_path: Path) -> None:
    entries: list[object] = [[("k", [("x", 1)])], [], None]
    strings = pa.map_(pa.string(), pa.map_(pa.string(), pa.int8()))
    batch = one(strings, *entries).to_batches()[0]
    shown = [json.loads(line)["a"] for line in json_lines(batch).splitlines()]
    assert shown == [{"k": {"x": 1}}, {}, None]
    numbers = one(pa.map_(pa.int8(), pa.int8()), [(1, 2)]).to_batches()[0]
    assert json_lines(numbers) == b'{"a":[{"key":1,"value":2}]}\n'


def test_no_rows_make_a_file_with_a_header_or_schema(tmp_path: Path) -> None:
    table = one(pa.int64())
    assert write(tmp_path / "a.csv", table) == b'"a"\n'
    assert write(tmp_path / "a.ndjson", table) == b""
    write(tmp_path / "a.parquet", table)
    assert pq.read_table(tmp_path / "a.parquet").equals(table)


def test_text_is_compressed_by_its_ending_and_equal_rows_make_equal_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = one(pa.int64(), *range(1000))
    plain = write(tmp_path / "a.csv", table)
    assert gzip.decompress(first := write(tmp_path / "a.csv.gz", table)) == plain
    monkeypatch.setattr("time.time", lambda: 1_000_000_000.0)
    assert first == write(tmp_path / "b.csv.gz", table)
    zipped = write(tmp_path / "a.csv.zst", table)
    assert zstandard.ZstdDecompressor().decompressobj().decompress(zipped) == plain


@pytest.mark.parametrize("ending", ["csv", "ndjson", "csv.gz"])
def test_threads_that_render_rows_change_no_byte(ending: str, tmp_path: Path) -> None:
    table = one(pa.string(), *(f'{n} "quoted", {n % 7}' for n in range(10_001)))
    found = set()
    for threads in (1, 2, 3):
        path = tmp_path / f"{threads}.{ending}"
        with open_table_sink(str(path), table.schema, SinkOptions(threads=threads)) as sink:
            for batch in table.to_batches(max_chunksize=7000):
                sink.write(batch)
        found.add(path.read_bytes())
    assert len(found) == 1


def test_the_first_value_that_cannot_be_written_is_told_of_by_any_number_of_threads(
    tmp_path: Path,
) -> None:
    fine = ["1"] * 6000
    texts = pa.array([*fine, "{first", *fine, "{second"])
    table = pa.table({"a": pa.ExtensionArray.from_storage(pa.json_(pa.string()), texts)})
    told = set()
    for threads in (1, 2):
        path = tmp_path / "a.ndjson"
        options = SinkOptions(threads=threads)
        with (
            pytest.raises(InputError) as error,
            open_table_sink(str(path), table.schema, options) as sink,
        ):
            sink.write(table.to_batches()[0])
        told.add(str(error.value))
        assert list(tmp_path.iterdir()) == []
    assert len(told) == 1


def test_small_batches_share_a_row_group_and_large_ones_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "ROW_GROUP_ROWS", 1000)
    path = tmp_path / "a.parquet"
    for rows_per_batch in (3, 1, 999, 1000, 2500):
        write(path, one(pa.int64(), *range(2500)), rows_per_batch)
        metadata = pq.read_metadata(path)
        groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        assert groups == [1000, 1000, 500]
        assert pq.read_table(path)["a"].to_pylist() == list(range(2500))
    table = one(pa.int64(), *range(250))
    with open_table_sink(str(path), table.schema, SinkOptions(row_group_bytes=800)) as sink:
        sink.write(table.to_batches()[0])
    assert pq.read_metadata(path).num_row_groups == 3


def test_parquet_is_compressed(tmp_path: Path) -> None:
    path = str(tmp_path / "a.parquet")
    table = one(pa.int64(), 2, 1)
    with open_table_sink(path, table.schema) as sink:
        sink.write(table.to_batches()[0])
    group = pq.read_metadata(path).row_group(0)
    assert group.column(0).compression == "ZSTD"


def test_batches_with_dictionaries_of_their_own_fit_one_arrow_file(tmp_path: Path) -> None:
    dtype = pa.dictionary(pa.int8(), pa.string())
    batches = [pa.RecordBatch.from_pydict({"a": pa.array([v], dtype)}) for v in ("x", "y")]
    path = tmp_path / "a.arrow"
    with open_table_sink(str(path), batches[0].schema) as sink:
        for batch in batches:
            sink.write(batch)
    assert pa.ipc.open_file(pa.memory_map(str(path))).read_all()["a"].to_pylist() == ["x", "y"]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("a.parquet", pa.month_day_nano_interval()),
        ("a.parquet", pa.struct([])),
        ("a.csv", pa.dense_union([pa.field("x", pa.int8())])),
        ("a.ndjson", pa.list_(pa.dense_union([pa.field("x", pa.int8())]))),
    ],
)
def test_a_type_that_the_format_cannot_hold_is_refused_by_column(
    tmp_path: Path, name: str, dtype: pa.DataType
) -> None:
    with (
        refuses(InputError, name),
        open_table_sink(str(tmp_path / name), pa.schema([("ok", pa.int8()), ("bad", dtype)])),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_value_that_the_format_cannot_hold_is_refused_and_nothing_left(tmp_path: Path) -> None:
    table = pa.table({"a": pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(["{"]))})
    with refuses(InputError):
        write(tmp_path / "a.ndjson", table)
    assert list(tmp_path.iterdir()) == []
    with refuses(InputError):
        json_lines(table.to_batches()[0])


@pytest.mark.parametrize("ending", ["ndjson", "csv"])
@pytest.mark.parametrize("key", [float("nan"), float("inf")])
def test_a_key_that_json_lacks_is_refused_where_maps_are_read_back(
    tmp_path: Path, ending: str, key: float
) -> None:
    maps = pa.array([[(1.0, "a")], [(key, "b")]], pa.map_(pa.float32(), pa.string()))
    path = tmp_path / f"x.{ending}"
    with refuses(InputError):
        write(path, pa.table({"n": [1, 2], "m": maps}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.csv.gz", "a.ndjson.zst"])
def test_an_error_half_way_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    path.write_bytes(b"old")
    table = one(pa.int64(), 1, 2, 3)
    with pytest.raises(RuntimeError), open_table_sink(str(path), table.schema) as sink:
        sink.write(table.to_batches()[0])
        assert path.read_bytes() == b"old"
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    write(path, table)
    assert path.read_bytes() != b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_and_the_file_it_names_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "a.csv", tmp_path / "link.csv"
    link.symlink_to(target)
    write(link, one(pa.int64(), 1))
    assert link.is_symlink()
    assert target.read_bytes() == b'"a"\n1\n'


@pytest.mark.parametrize(
    "name", ["a.xlsx", "a", "no/such/a.csv", "folder.csv", "x" * 300 + ".csv", "loop/a.csv"]
)
def test_a_place_that_cannot_be_written_is_refused_before_any_work(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    path = str(tmp_path / name)
    with refuses(UsageError, path), open_table_sink(path, pa.schema([])):
        pass
    with pytest.raises(UsageError):
        check_sink_path(path)


def test_a_full_disk_is_a_job_error_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with refuses(JobError):
        write(tmp_path / "a.csv", one(pa.int64(), 1))
    assert list(tmp_path.iterdir()) == []
