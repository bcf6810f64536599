"""Text files are parsed once: rows are converted if later ones widen their types, or are parsed again."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compactor.files import read as files_read
from compactor.files.ndjson import NdjsonBatches
from compactor.files.read import open_table_file
from tests.files.reading import put, refusal, table_of
from tests.support.arrow_pool import counting_pool

ROWS = 3_000
BLOCK = 4_096
"""Some 20 blocks in a file of CSV, whose rows have up to that many bytes, and 10 to be held."""
NONE, ALL = 0, 1 << 20


@pytest.fixture(autouse=True)
def small_rows_of_csv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compactor.files.csv.MAX_ROW_BYTES", BLOCK)


def _written(folder: Path, ending: str, values: Sequence[str]) -> str:
    """A file of a number and of a value as each format writes it."""
    if ending == "csv":
        text = "n,v\n" + "".join(f"{n},{value.strip(chr(34))}\n" for n, value in enumerate(values))
    else:
        text = "".join(f'{{"n":{n},"v":{value}}}\n' for n, value in enumerate(values))
    return put(folder, f"a.{ending}", text)


@pytest.mark.parametrize("held", [NONE, 3, ALL])
@pytest.mark.parametrize("ending", ["csv", "ndjson"])
@pytest.mark.parametrize(
    ("early", "last", "dtype"),
    [
        ("1", "2.5", pa.float64()),
        ("-0", "0.5", pa.float64()),
        ("7", str(2**64 - 1), pa.uint64()),
        ('"2024-01-01"', '"2024-01-01 10:00:00"', pa.timestamp("us")),
        ('"2024-01-01T00:00:00"', '"2024-01-01T00:00:00.123456789"', pa.timestamp("ns")),
        ('"2024-01-01T00:00:00+02:00"', '"soon"', pa.string()),
        ('"2024-01-01"', '"2024-01-01T00:00:00Z"', pa.string()),
        ('"9999-12-31T00:00:00"', '"2024-01-01T00:00:00.123456789"', pa.string()),
    ],
)
def test_a_type_that_the_last_row_widens_is_that_of_all_rows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    early: str,
    last: str,
    dtype: pa.DataType,
    ending: str,
    held: int,
) -> None:
    monkeypatch.setattr(files_read, "_HELD_BATCHES", held)
    table = table_of(_written(tmp_path, ending, [early] * ROWS + [last]), batch_bytes=BLOCK)
    alone = table_of(_written(tmp_path, ending, [early, last]), batch_bytes=1 << 20)
    assert table.schema == alone.schema
    assert table.schema.field("v").type == dtype
    assert table["n"].to_pylist() == list(range(ROWS + 1))
    for row, expected in ((0, 0), (ROWS - 1, 0), (ROWS, 1)):
        assert repr(table["v"][row].as_py()) == repr(alone["v"][expected].as_py())


@pytest.mark.parametrize(
    ("early", "last"),
    [("9007199254740993", "0.5"), ("-0", str(2**63)), ("true", "1"), ("1.5", "x"), ("1", "x")],
)
def test_cells_that_no_other_type_holds_become_the_texts_that_they_were(
    tmp_path: Path, early: str, last: str
) -> None:
    path = _written(
        tmp_path, "csv", [early, "", " 1" if early == "1" else early, *[early] * ROWS, last]
    )
    column = table_of(path, batch_bytes=BLOCK)["v"]
    assert column.type == pa.string()
    assert column.to_pylist()[:3] == [early, None, " 1" if early == "1" else early]
    assert column[-1].as_py() == last


@pytest.mark.parametrize("held", [NONE, 3, ALL])
def test_fields_that_the_last_row_adds_are_null_in_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(files_read, "_HELD_BATCHES", held)
    rows: list[dict[str, Any]] = [{"a": n, "s": {"x": n}, "l": [{"y": n}]} for n in range(ROWS)]
    rows.append(
        {"new": "2024-01-01", "a": 0.5, "s": {"x": None, "z": [True]}, "l": [{"w": "t"}, None]}
    )
    path = put(tmp_path, "a.ndjson", "".join(json.dumps(row) + "\n" for row in rows))
    table = table_of(path, batch_bytes=BLOCK)
    alone = table_of(put(tmp_path, "b.ndjson", json.dumps(rows[0]) + "\n" + json.dumps(rows[-1])))
    assert table.schema == alone.schema
    assert table.slice(ROWS).to_pylist() == alone.slice(1).to_pylist()
    assert table.slice(0, 1).to_pylist() == alone.slice(0, 1).to_pylist()
    assert table["a"].to_pylist()[:-1] == list(range(ROWS))


@pytest.mark.parametrize("held", [NONE, 3, ALL])
@pytest.mark.parametrize("ending", ["csv", "ndjson"])
def test_bad_rows_are_left_out_wherever_the_held_rows_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int, ending: str
) -> None:
    monkeypatch.setattr(files_read, "_HELD_BATCHES", held)
    known = pa.schema([("v", pa.int8())])
    values = ["300" if n % 700 == 5 else str(n % 100) for n in range(ROWS)]
    path = _written(tmp_path, ending, values)
    assert "300" in refusal(path, known, batch_bytes=BLOCK)
    with source_of(path, known) as file:
        table = pa.Table.from_batches(file, schema=file.schema)
        assert [row.ordinal for row in file.bad_rows] == list(range(5, ROWS, 700))
        kept = file.kept_of_bad_rows(pa.int64()).to_pylist()
    assert kept == list(range(5, ROWS, 700))
    assert table["n"].to_pylist() == [n for n in range(ROWS) if n % 700 != 5]


def source_of(path: str, known: pa.Schema) -> Any:
    return open_table_file(
        path, known, batch_bytes=BLOCK, leaves_out_bad_rows=True, kept_column="n"
    )


@pytest.mark.parametrize(("held", "expected"), [(ALL, 1), (3, 2)])
def test_only_what_is_not_held_is_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int, expected: int
) -> None:
    monkeypatch.setattr(files_read, "_HELD_BATCHES", held)
    parsed: dict[int, int] = {}
    original = NdjsonBatches._good_rows

    def counted(file: NdjsonBatches, block: Any, bad: Any) -> Iterator[Any]:
        parsed[block.first_line] = parsed.get(block.first_line, 0) + 1
        yield from original(file, block, bad)

    monkeypatch.setattr(NdjsonBatches, "_good_rows", counted)
    path = Path(_written(tmp_path, "ndjson", ["1"] * ROWS))
    packed = put(tmp_path, "a.ndjson.gz", gzip.compress(path.read_bytes()))
    assert table_of(packed, batch_bytes=BLOCK).num_rows == ROWS
    times = list(parsed.values())
    assert times[0] == 1
    assert times[-1] == expected


@pytest.mark.parametrize("is_nested", [False, True])
def test_rows_that_leave_out_most_fields_are_parsed_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_nested: bool
) -> None:
    """Fields that later lines leave out count, whatever their depth, and pieces count as they come."""
    monkeypatch.setattr("compactor.files.json_arrays.MAX_CELLS", 100_000)
    monkeypatch.setattr(files_read, "_HELD_BATCHES", 1)
    wide = json.dumps({f"k{n}": 1 for n in range(1_000)})
    line = f'{{"s":{wide}}}' if is_nested else wide
    path = put(tmp_path, "a.ndjson", f"{line}\n" + '{"a":1}\n' * 5_000)
    with counting_pool() as pool, open_table_file(path, batch_bytes=1 << 20) as file:
        assert file.bytes_consumed == 0
        batches = [batch.num_rows for batch in file]
    assert sum(batches) == 5_001
    assert max(batches) <= 100
    assert pool.max_memory() < 12 << 20


def test_a_bad_line_is_left_out_again_beside_as_many_columns_as_there_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_read, "_HELD_BATCHES", NONE)
    monkeypatch.setattr("compactor.files.json_arrays.MAX_COLUMNS", 20)
    many = json.dumps({f"k{n}": 1 for n in range(19)})
    lines = ['{"a":1}', '{"more":1,"a":"x"}', *['{"a":2}'] * ROWS, many]
    path = put(tmp_path, "a.ndjson", "\n".join(lines))
    with open_table_file(path, batch_bytes=BLOCK, leaves_out_bad_rows=True) as file:
        assert sum(batch.num_rows for batch in file) == ROWS + 2
        assert [row.ordinal for row in file.bad_rows] == [1]


def test_columns_of_the_table_whose_types_are_stored_as_others_are_converted_once(
    tmp_path: Path,
) -> None:
    uuid, other = "ABEiM0RVZneImaq7zN3u/w==", "/////////////////////w=="
    known = pa.schema([
        ("id", pa.uuid()), ("view", pa.binary_view()),
        ("coded", pa.dictionary(pa.int32(), pa.large_binary())), ("nested", pa.struct([("id", pa.uuid())])),
    ])  # fmt: skip
    line = '{"id":"%s","view":"%s","coded":"%s","nested":{"id":"%s"}}\n'
    path = put(tmp_path, "a.ndjson", line % ((uuid,) * 4) + line % ((other,) * 4))
    with open_table_file(path, known) as file:
        table = pa.Table.from_batches(file)
    assert table.schema == known
    for name in ("view", "coded"):
        assert table[name].to_pylist() == [base64.b64decode(uuid), base64.b64decode(other)]
    assert table["id"].to_pylist() == [row["id"] for row in table["nested"].to_pylist()]
    assert [value.bytes for value in table["id"].to_pylist()] == table["view"].to_pylist()
