"""What exported files say of types and order, and what comes of it when they are ingested again."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import compactor.write.ingest.sorting
from compactor import IngestOptions, RowKind, RowPolicy, Table
from compactor.cli.main import run
from compactor.errors import TableNotFoundError, UsageError
from compactor.files.read import open_table_file
from compactor.files.sortedness import METADATA_KEY
from compactor.files.write import SinkOptions, open_table_sink
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.write.ingest import ingest_file
from lsm_fragment.keys.normalised import SortKeys, stable_order
from lsm_fragment.keys.sort_schema import parse_sort_schema, sort_text
from tests.support.loops import loops
from tests.support.samples import SAMPLES, sample_array
from tests.support.wording import refuses

NOT_IN_PARQUET = {"interval"}


def sort_key(value: Any, column: pq.SortingColumn) -> tuple[int, Any]:
    """Parquet's order of one value, by its own words: nulls first or last, whatever the direction."""
    if value is None:
        return (0 if column.nulls_first else 2, 0)
    if isinstance(value, str):
        value = value.encode()
    return (1, Reversed(value) if column.descending else value)


class Reversed:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: Reversed) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reversed) and other.value == self.value


def assert_sorted_as_it_says(path: Path) -> list[tuple[str, bool, bool]]:
    """What the file says it is sorted by: true of every row group, by a reader that knows nothing of us."""
    file = pq.ParquetFile(path)
    said: list[tuple[str, bool, bool]] = []
    for index in range(file.num_row_groups):
        columns = file.metadata.row_group(index).sorting_columns
        names = [file.schema.column(column.column_index).path for column in columns]
        said = [(n, c.descending, c.nulls_first) for n, c in zip(names, columns, strict=True)]
        # As stored: no dictionary, no type of Arrow's.
        rows = file.read_row_group(index, columns=names)
        values = zip(*(rows[name].to_pylist() for name in names), strict=True)
        keys = [[sort_key(v, c) for v, c in zip(row, columns, strict=True)] for row in values]
        assert all(not later < earlier for earlier, later in itertools.pairwise(keys))
    return said


def exported(tmp_path: Path, rows: pa.Table, sort_by: str, name: str = "out.parquet") -> Path:
    Table.create(tmp_path / f"for-{name}", rows, sort_by).scan().to_file(tmp_path / name)
    return tmp_path / name


LOGS = pa.table(
    {
        "inner": pa.array([{"a": 1, "b": "x"}, None, {"a": 2, "b": "y"}]),
        "service": ["web", "api", None],
        "at": pa.array([5, 9, 7], pa.timestamp("ms", "UTC")),
        "price": [float("nan"), 1.5, None],
        "note": ["z", "ä", None],
    }
)


def test_parquet_says_how_its_rows_are_sorted_as_far_as_it_orders_them_alike(
    tmp_path: Path,
) -> None:
    path = exported(tmp_path, LOGS, "service:nulls_first,at:desc,price,note")
    # Where NaN stands Parquet does not say: what comes before is true nevertheless.
    assert assert_sorted_as_it_says(path) == [("service", False, True), ("at", True, False)]
    metadata = pq.read_metadata(path).metadata
    assert [column["column"] for column in json.loads(metadata[METADATA_KEY])] == [
        "service", "at", "price", "note",
    ]  # fmt: skip
    assert exported(tmp_path, LOGS, "price", "p.parquet")
    assert assert_sorted_as_it_says(tmp_path / "p.parquet") == []


def test_only_the_columns_that_an_export_keeps_count(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", LOGS, "service,at:desc")
    table.scan(["note", "service"]).to_file(tmp_path / "first.parquet")
    table.scan(["at", "note"]).to_file(tmp_path / "none.parquet")
    assert assert_sorted_as_it_says(tmp_path / "first.parquet") == [("service", False, False)]
    assert assert_sorted_as_it_says(tmp_path / "none.parquet") == []
    assert METADATA_KEY not in pq.read_metadata(tmp_path / "none.parquet").metadata
    table.alter(renames={"service": "app"})
    table.scan().to_file(tmp_path / "renamed.parquet")
    said = assert_sorted_as_it_says(tmp_path / "renamed.parquet")
    assert said == [("app", False, False), ("at", True, False)]


@pytest.mark.parametrize("ending", ["parquet", "arrow", "frag"])
@pytest.mark.parametrize("sort_by", ["service:nulls_first,at:desc,price", "price:desc,note"])
def test_a_new_table_is_sorted_as_the_exported_file_says(
    tmp_path: Path, ending: str, sort_by: str
) -> None:
    path = exported(tmp_path, LOGS, sort_by, f"out.{ending}")
    again = Table.create(tmp_path / "again", path)
    assert again.sort_by == sort_by
    before = Table.open(tmp_path / f"for-out.{ending}")
    assert repr(again.scan().to_table().to_pylist()) == repr(before.scan().to_table().to_pylist())


def test_the_command_line_says_what_sort_schema_it_took(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = exported(tmp_path, LOGS, "service,at:desc")
    assert run(["ingest", str(tmp_path / "again"), str(path)]) == 0
    said = capsys.readouterr().out
    assert "the table is sorted by service,at:desc, as the file says it is" in said
    for expected in ("service,at:desc", None):
        assert run(["ingest", str(tmp_path / "third"), str(path), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["sort_of_file"] == expected


def test_sorting_columns_of_other_writers_are_taken_too(tmp_path: Path) -> None:
    rows = pa.table({"n": [1, 2, None], "s": [{"x": 1}] * 3, "t": ["b", "a", "a"]})
    order = [pq.SortingColumn(2, descending=True), pq.SortingColumn(0, nulls_first=True)]
    pq.write_table(rows, tmp_path / "f.parquet", sorting_columns=order)
    table = Table.create(tmp_path / "t", tmp_path / "f.parquet")
    assert table.sort_by == "t:desc,n:nulls_first"
    nested = [pq.SortingColumn(0), pq.SortingColumn(1)]
    pq.write_table(rows, tmp_path / "n.parquet", sorting_columns=nested)
    assert Table.create(tmp_path / "n", tmp_path / "n.parquet").sort_by == "n"


def test_a_table_in_memory_keeps_what_its_file_said(tmp_path: Path) -> None:
    path = exported(tmp_path, LOGS, "service,at:desc")
    assert Table.create(tmp_path / "again", pq.read_table(path)).sort_by == "service,at:desc"
    with refuses(UsageError):
        Table.create(tmp_path / "no", LOGS)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"{}",
        b"[1]",
        b'[{"column": "n"}]',
        b"\xff",
        b'[{"column": 5, "order": "asc"}]',
        b"[" * 5000,
    ],
)
def test_metadata_that_makes_no_sense_is_as_if_it_were_not_there(
    tmp_path: Path, said: bytes
) -> None:
    rows = pa.table({"n": [1]}).replace_schema_metadata({METADATA_KEY: said})
    pq.write_table(rows, tmp_path / "f.parquet")
    with refuses(TableNotFoundError):
        Table.create(tmp_path / "t", tmp_path / "f.parquet")
    assert len(Table.create(tmp_path / "t", tmp_path / "f.parquet", "n")) == 1


def test_what_a_file_says_of_its_order_is_not_believed(tmp_path: Path) -> None:
    rows = pa.table({"n": [3, 1, 2], "t": ["c", "a", "b"]})
    pq.write_table(rows, tmp_path / "f.parquet", sorting_columns=[pq.SortingColumn(0)])
    table = Table.create(tmp_path / "t", tmp_path / "f.parquet")
    assert table.sort_by == "n"
    assert table.scan().to_table().to_pydict() == {"n": [1, 2, 3], "t": ["a", "b", "c"]}
    assert table.verify().faults == []


def test_rows_that_come_in_order_are_not_sorted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = exported(tmp_path, LOGS, "service,at:desc")
    sorts: list[int] = []

    def counted(keys: SortKeys) -> Any:
        sorts.append(keys.rows)
        return stable_order(keys)

    monkeypatch.setattr(compactor.write.ingest.sorting, "stable_order", counted)
    again = Table.create(tmp_path / "again", path)
    assert sorts == []
    again.append(LOGS)
    assert sorts == [3]
    assert again.verify().faults == []


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 3) | st.none(), st.text(max_size=2)), max_size=30))
def test_sorted_and_shuffled_rows_make_the_same_fragment(
    tmp_path_factory: pytest.TempPathFactory, values: list[tuple[int | None, str]]
) -> None:
    folder = tmp_path_factory.mktemp("t")
    schema = pa.schema([("n", pa.int64()), ("t", pa.string())])
    rows = pa.Table.from_pylist([{"n": n, "t": t} for n, t in values], schema)
    sort_by = "n:desc:nulls_first,t"
    if not values:
        return
    first = Table.create(folder / "first", rows, sort_by)
    second = Table.create(folder / "second", first.scan().to_table(), sort_by)
    tables = [table.fragments().drop(["key"]) for table in (first, second)]
    assert tables[0] == tables[1]
    assert first.scan().to_table() == second.scan().to_table()


@pytest.mark.parametrize("policy", ["last", "append"])
def test_a_file_may_say_the_sequence_column_among_those_it_is_sorted_by(
    tmp_path: Path, policy: str
) -> None:
    rows = pa.table({"id": [1, 1, 2], "at": [1, 2, 1], "v": ["a", "b", "c"]})
    path = exported(tmp_path, rows, "id,at")
    options = IngestOptions(rows=RowPolicy(RowKind(policy), "at") if policy == "last" else None)
    table = Table.create(tmp_path / "again", path, options=options)
    expected = {"last": ["b", "c"], "append": ["a", "b", "c"]}[policy]
    assert table.scan().to_table()["v"].to_pylist() == expected


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@loops("name", SAMPLES)
def test_every_type_comes_back_from_a_file_and_other_readers_see_the_same(
    name: str, ending: str, tmp_path: Path
) -> None:
    if ending == "parquet" and name in NOT_IN_PARQUET:
        return
    array = sample_array(name)
    rows = pa.table({"v": array, "row": range(len(array))})
    first = Table.create(tmp_path / name / "first", rows, "row")
    path = tmp_path / name / f"out.{ending}"
    first.scan().to_file(path)
    again = Table.create(tmp_path / name / "again", path)
    assert again.sort_by == "row"
    assert repr(again.scan().to_table().to_pylist()) == repr(rows.to_pylist())
    assert again.schema == first.schema
    if ending == "parquet":
        assert assert_sorted_as_it_says(path) == [("row", False, False)]


COMMON = [
    "bool", "int8", "uint64", "float64", "decimal128_small", "string", "binary", "date32",
    "timestamp", "timestamp_zone", "dictionary", "list", "struct",
]  # fmt: skip


@pytest.mark.parametrize("name", COMMON)
def test_other_engines_read_an_exported_file_as_the_table_is(name: str, tmp_path: Path) -> None:
    array = sample_array(name)
    table = Table.create(
        tmp_path / "t", pa.table({"v": array, "row": range(len(array))}), "row:desc"
    )
    path = str(tmp_path / "out.parquet")
    table.scan().to_file(path)
    expected = table.scan().to_table()
    assert pq.read_table(path).equals(expected)
    by_polars = pl.read_parquet(path)
    assert by_polars.equals(pl.DataFrame(table.scan()))
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        from_file = connection.execute("SELECT v::VARCHAR, row FROM read_parquet(?)", [path])
        rows = from_file.fetchall()
        scan = table.scan()  # noqa: F841 - DuckDB looks for it
        assert rows == connection.execute("SELECT v::VARCHAR, row FROM scan").fetchall()
    assert pc.all(
        pc.equal(pa.array([r for _, r in rows]), expected["row"].combine_chunks())
    ).as_py()


@settings(max_examples=40)
@given(
    names=st.lists(
        st.sampled_from(sorted(set(SAMPLES) - NOT_IN_PARQUET - {"long_strings"})), max_size=4
    ),
    place=st.integers(0, 4),
    descending=st.booleans(),
    nulls_first=st.booleans(),
)
def test_sorting_columns_name_the_right_one_whatever_stands_beside(
    tmp_path_factory: pytest.TempPathFactory,
    names: list[str],
    place: int,
    descending: bool,
    nulls_first: bool,
) -> None:
    """Parquet numbers leaves: structs, maps and lists before a column count as many as they have."""
    path = tmp_path_factory.mktemp("t") / "f.parquet"
    keys = pa.array(sorted([5, 3, 3, 1], reverse=descending))
    if nulls_first:
        keys = pa.concat_arrays([pa.nulls(2, keys.type), keys])
    columns = [
        (f"v{i}", pa.array([None] * len(keys), sample_array(n).type)) for i, n in enumerate(names)
    ]
    columns.insert(min(place, len(columns)), ("key", keys))
    rows = pa.table(dict(columns))
    sort = f"key{':desc' if descending else ''}{':nulls_first' if nulls_first else ''}"
    with open_table_sink(str(path), rows.schema, SinkOptions(sort=parse_sort_schema(sort))) as sink:
        for batch in rows.to_batches():
            sink.write(batch)
    assert assert_sorted_as_it_says(path) == [("key", descending, nulls_first)]
    with open_table_file(str(path)) as file:
        assert sort_text(file.sort) == sort


SORTABLE = [
    n for n, (t, _) in SAMPLES.items()
    if not (pa.types.is_nested(t) or n in ("interval", "uuid", "long_strings"))
]  # fmt: skip


@loops("name", SORTABLE)
@pytest.mark.parametrize("modifier", ["", ":desc", ":nulls_first", ":desc:nulls_first"])
def test_what_parquet_files_say_is_true_of_every_type(
    name: str, modifier: str, tmp_path: Path
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    array = sample_array(name, 2)
    rows = pa.table({"v": array, "row": list(range(len(array)))})
    path = exported(folder, rows, f"v{modifier},row:desc")
    said = assert_sorted_as_it_says(path)
    assert bool(said) != pa.types.is_floating(array.type)
    store = open_store(str(folder / "again"))
    report = ingest_file(store, CommitLog(store), str(path), None, IngestOptions())
    assert sort_text(report.sort_of_file) == f"v{modifier},row:desc"
