"""Rows that come by Arrow's stream interface: what producers raise, names, and the index of pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from compactor import Scan, Table
from compactor.errors import InputError, UsageError
from lsm_fragment import open_fragment
from lsm_fragment.errors import CorruptFragmentError, NotAFragmentError
from tests.support.wording import refuses

SCHEMA = pa.schema([("k", pa.int64())])


class ByC:
    """Has the stream interface, and nothing of Arrow's own classes."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._reader.__arrow_c_stream__(requested_schema)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(tmp_path / "t", pa.table({"k": [1]}), "k")


def reader_that_raises(error: BaseException) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"k": [2]})
        raise error

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("stop here"), ValueError("stop here"), KeyError("stop here"), InputError("stop here"),
        ConnectionError("stop here"), FileNotFoundError(2, "stop here"), KeyboardInterrupt("stop here"),
        NotAFragmentError("stop here"), pa.ArrowInvalid("stop here"), SystemExit(3),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_what_a_generator_raises_comes_through_and_no_row_is_added(
    table: Table, error: BaseException
) -> None:
    with pytest.raises(type(error)) as caught:
        table.append(reader_that_raises(error))
    assert caught.value is error
    assert error.__cause__ is None
    assert Table.open(table.url).version == 1


def test_what_arrow_raises_in_a_generator_is_the_generators(table: Table) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"k": pc.cast(pa.array(["x"]), pa.int64())})

    with pytest.raises(pa.ArrowInvalid, match="Failed to parse string: 'x'"):
        table.append(pa.RecordBatchReader.from_batches(SCHEMA, batches()))


def test_through_c_it_is_one_line_of_what_was_raised(table: Table) -> None:
    class OwnError(Exception):
        pass

    for error, said in (
        (KeyError("stop here"), r"KeyError: 'stop here'"),
        (ValueError("two\n  lines\nof: it"), "ValueError: two"),
        (ValueError(), "ValueError"),
        (OwnError("stop. Detail: here"), "OwnError: stop. Detail: here"),
    ):
        with pytest.raises(InputError, match=f"^appended rows: their producer raised {said}$"):
            table.append(ByC(reader_that_raises(error)))
    chained = KeyError("first")
    chained.__cause__ = ValueError("cause")
    with pytest.raises(InputError, match=r"raised KeyError: 'first'$"):
        table.append(ByC(reader_that_raises(chained)))
    assert Table.open(table.url).version == 1


def test_an_interrupt_stays_one_through_c(table: Table) -> None:
    with pytest.raises(KeyboardInterrupt):
        table.append(ByC(reader_that_raises(KeyboardInterrupt())))
    assert Table.open(table.url).version == 1


def test_damage_of_a_scan_that_is_appended_is_named_by_its_own_error(
    table: Table, tmp_path: Path
) -> None:
    source = Table.create(tmp_path / "source", pa.table({"k": range(1000)}), "k")
    (key,) = source.fragments()["key"].to_pylist()
    path = tmp_path / "source" / key
    with open_fragment(path) as fragment:
        chunk = fragment.footer.columns["k"][0]
    data = bytearray(path.read_bytes())
    data[chunk.offset + chunk.stored_bytes - 3] ^= 1
    path.write_bytes(data)
    with open_fragment(path) as fragment:
        streams: tuple[Scan | Any, ...] = (source.scan(), fragment)
        for stream in streams:
            with refuses(CorruptFragmentError):
                table.append(stream)


def test_a_stream_file_that_is_cut_off_is_bad_input(table: Table) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(pa.record_batch({"k": list(range(1000))}))
    whole = sink.getvalue()
    with refuses(InputError):
        table.append(pa.ipc.open_stream(whole.slice(0, whole.size - 500)))


NESTED = pa.array([{"in\0side": 1}])
NUL: list[tuple[Callable[[], Any], str]] = [
    (lambda: pa.table({"k": [1], "a\0b": [2]}), r"'a\x00b'"),
    (lambda: pa.record_batch({"k": [1], "a\0b": [2]}), r"'a\x00b'"),
    (lambda: pa.table({"k": [1], "a\0b": [2]}).to_reader(), r"'a\x00b'"),
    (lambda: pa.table({"k": [1], "s": NESTED}), r"'in\x00side'"),
    (lambda: pd.DataFrame({"k": [1], "a\0b": [2]}), r"'a\x00b'"),
    (lambda: pl.DataFrame({"k": [1], "a\0b": [2]}), r"'a\x00b'"),
]


@pytest.mark.parametrize(("rows", "shown"), NUL)
def test_a_name_with_a_nul_is_refused_and_not_cut(
    table: Table, tmp_path: Path, rows: Callable[[], Any], shown: str
) -> None:
    for add in (table.append, lambda rows: Table.create(tmp_path / "new", rows, "k")):
        with refuses(InputError, shown):
            add(rows())
    assert Table.open(table.url).schema.names == ["k"]
    assert not Table.exists(tmp_path / "new")


@pytest.mark.parametrize("ending", ["parquet", "arrow", "ndjson", "csv"])
@pytest.mark.parametrize("name", ["a\0b"])
def test_names_in_files_that_no_column_can_have_are_refused(
    table: Table, tmp_path: Path, ending: str, name: str
) -> None:
    rows = pa.table({"k": [1], name: [2]})
    path = tmp_path / f"rows.{ending}"
    if ending == "parquet":
        pq.write_table(rows, path)
    elif ending == "arrow":
        with pa.ipc.new_file(path, rows.schema) as writer:
            writer.write_table(rows)
    elif ending == "ndjson":
        escaped = name.replace("\0", "\\u0000")
        path.write_text(f'{{"k":1,"{escaped}":2}}\n')
    else:
        path.write_text(f"k,{name}\n1,2\n")
    with refuses(InputError, path.name):
        table.append(path)
    with refuses(InputError):
        Table.create(tmp_path / "new", path, "k")
    assert Table.open(table.url).schema.names == ["k"]


def test_a_rename_to_a_name_that_no_column_can_have_is_refused(table: Table) -> None:
    for name in ("a\0b", "\udc80", ""):
        with refuses(UsageError):
            table.alter(renames={"k": name})
    assert Table.open(table.url).version == 1


def test_an_index_of_pandas_is_a_column_if_it_has_a_name(table: Table) -> None:
    frame = pd.DataFrame({"k": [2, 3, 4]})
    table.append(frame[frame.k > 2])
    table.append(pd.DataFrame({"k": [5]}, index=["a"]))
    table.append(pa.table(pd.DataFrame({"k": [6]}, index=["a"])))
    assert table.schema.names == ["k"]
    levels = pd.MultiIndex.from_tuples([(7, "a", "b")], names=["k", None, "host"])
    table.append(pd.DataFrame({"v": [1]}, index=levels))
    assert table.schema.names == ["k", "v", "host"]
    assert table.scan(["k"]).to_table()["k"].to_pylist() == [1, 3, 4, 5, 6, 7]
    # A column that is only called so is one.
    table.append(pa.table({"k": [8], "__index_level_0__": [1]}))
    assert "__index_level_0__" in table.schema.names


@pytest.mark.parametrize(
    "said", [b"no json", b"[]", b"{}", b'{"columns": 5, "index_columns": [{}]}', b"\xff"]
)
def test_remarks_about_pandas_that_make_no_sense_are_none(table: Table, said: bytes) -> None:
    table.append(pa.table({"k": [2]}).replace_schema_metadata({"pandas": said}))
    assert len(table) == 2


def test_python_objects_of_polars_are_refused_by_their_column(table: Table) -> None:
    schema = {"k": pl.Int64, "object": pl.Object}
    with refuses(InputError, "'object'"):
        table.append(pl.DataFrame({"k": [1], "object": [object()]}, schema=schema))


def test_lists_over_an_empty_slice_of_views_are_empty(table: Table) -> None:
    views = pa.array(["short", "longer than twelve bytes"], pa.string_view())
    lists = pa.ListArray.from_arrays(pa.array([0, 0], pa.int32()), views.slice(1, 0))
    table.append(pa.table({"k": [2], "v": lists}))
    assert table.scan(["v"]).to_table()["v"].to_pylist() == [None, []]
