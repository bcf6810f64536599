"""CSV: types by the whole file, quoting, and every mistake named by its row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from compactor.errors import InputError
from compactor.files import csv
from compactor.files.number_text import read_floats
from compactor.files.read import open_table_file
from tests.files.reading import put, refusal, schema, table_of
from tests.support.wording import refuses


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "", "2"], pa.int64()),
        (["", "1", "2.5"], pa.float64()),
        (["1", "2", "three"], pa.string()),
        (["0", "1"], pa.int64()),
        (["true", "FALSE", ""], pa.bool_()),
        ([" 1 ", "2"], pa.int64()),
        (["18446744073709551615", "1"], pa.uint64()),
        (["99999999999999999999"], pa.string()),
        (["9007199254740993000", "0.5"], pa.string()),
        (["900719925474099", "0.5", "1e300"], pa.float64()),
        (["007", "1"], pa.string()),
        (["0x1F"], pa.string()),
        (["9007199254740993", "+5"], pa.string()),
        (["+49301", "49302"], pa.string()),
        (["1", "+1.5", ".5", "5."], pa.float64()),
        (["9007199254740992", "0.5"], pa.float64()),
        (["9007199254740993", "0.5"], pa.string()),
        (["9007199254740993.0"], pa.string()),
        (["-9223372036854775808", "0.5"], pa.float64()),
        (["9223372036854775808", "0.5"], pa.string()),
        (["12345678901234567.89"], pa.string()),
        (["0.10000000000000000555", "1.000000000000000056e-01"], pa.float64()),
        (["0.10000000000000000556"], pa.string()),
        (["1.500000000000000000000000"], pa.float64()),
        (["1e400", "0.5"], pa.string()),
        (["1e-400"], pa.string()),
        (["0e-400", "0.000", "-0"], pa.float64()),
        (["5e-324", "1.7976931348623157e308"], pa.float64()),
        (["nan(1)"], pa.string()),
        (["NaN", "-Infinity", "1"], pa.float64()),
        (["NaN", "9007199254740993"], pa.string()),
        (["1_000"], pa.string()),
        (["0", "1", "true"], pa.string()),
        (["t", "f"], pa.string()),
        ([" 2024-01-01", "2024-01-02 "], pa.date32()),
        ([" 2024-01-01T00:00:00Z "], pa.timestamp("us", "UTC")),
        ([" true"], pa.bool_()),
        ([" "], pa.string()),
        (["2024-1-1"], pa.string()),
        (["20240101"], pa.int64()),
        (["2024-01-01T23:59:60"], pa.string()),
        (["1500-01-01T00:00:00.123456789"], pa.string()),
        (["0.5", "-1e3", "nan"], pa.float64()),
        (["2024-01-01", ""], pa.date32()),
        (["2024-01-01 00:00:00", "2024-01-01"], pa.timestamp("us")),
        (["2024-01-01T00:00:00Z", "2024-01-01T00:00:00.5+01:00"], pa.timestamp("us", "UTC")),
        (["2024-01-01T00:00:00Z", "2024-01-01T00:00:00"], pa.string()),
        (["", ""], pa.null()),
        (['""', ""], pa.string()),
    ],
)
def test_a_column_has_the_first_type_that_all_its_cells_can_be_read_as(
    tmp_path: Path, cells: list[str], expected: pa.DataType
) -> None:
    path = put(tmp_path, "a.csv", "k,a\n" + "".join(f"x,{cell}\n" for cell in cells))
    assert table_of(path).schema == schema(k=pa.string(), a=expected)


def test_doubles_as_programs_print_them_are_not_looked_at_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scales = 10.0 ** np.arange(-300, 300, 24)
    values = (np.random.default_rng(1).normal(size=(40, 1)) * scales).ravel()
    texts = [repr(value) for value in values.tolist()]
    monkeypatch.setattr("compactor.files.number_text.float_holds", None)
    assert read_floats(pa.array(texts), pa.float64()).to_pylist() == values.tolist()


def test_text_that_is_of_no_other_type_is_as_it_is_in_the_file(tmp_path: Path) -> None:
    cells = ["+5", " 9007199254740993 ", "1e400", "007", "true", "2024-01-01 "]
    path = put(tmp_path, "a.csv", "a,k\n" + "".join(f"{cell},1\n" for cell in cells))
    assert table_of(path)["a"].to_pylist() == cells


def test_an_integer_that_a_double_does_not_hold_counts_in_whichever_block_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv, "MAX_ROW_BYTES", 64)
    for cells in (["9007199254740993"] + ["0.5"] * 99, ["0.5"] * 99 + ["9007199254740993"]):
        path = put(tmp_path, "a.csv", "a,k\n" + "".join(f"{cell},1\n" for cell in cells))
        assert table_of(path)["a"].to_pylist() == cells


def test_types_hold_over_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "MAX_ROW_BYTES", 64)
    path = put(tmp_path, "a.csv", "a,b,c\n" + ",1,0\n" * 100 + "2024-01-01,2.5,x\n")
    table = table_of(path)
    assert table.schema == schema(a=pa.date32(), b=pa.float64(), c=pa.string())
    assert table["c"].to_pylist() == ["0"] * 100 + ["x"]


def test_quotes_keep_newlines_commas_quotes_and_the_empty_string(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", 'a,b\r\n"x\r\ny, ""q""",1\r\n"",2\r\n,3\r\n')
    assert table_of(path)["a"].to_pylist() == ['x\r\ny, "q"', "", None]


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_the_last_cell_of_a_file_is_null_if_it_is_empty(tmp_path: Path, end: str) -> None:
    row = {"a": "x", "b": "y", "c": None}
    path = put(tmp_path, "a.csv", f'a,b,c\n"x","y",{end}')
    assert table_of(path, schema(c=pa.string())).to_pylist() == [row]


def test_a_byte_order_mark_is_not_part_of_the_first_name(tmp_path: Path) -> None:
    assert table_of(put(tmp_path, "a.csv", "\ufeffa\n1\n")).schema == schema(a=pa.int64())


def test_blank_lines_are_skipped_but_in_a_single_column_they_are_nulls(tmp_path: Path) -> None:
    assert len(table_of(put(tmp_path, "a.csv", "a,b\n1,2\n\n\n3,4\n"))) == 2
    assert table_of(put(tmp_path, "a.csv", "a\n1\n\n3\n"))["a"].to_pylist() == [1, None, 3]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("", "a.csv: "),
        ("\n\n", "a.csv: "),
        ("a,b\n", "a.csv: "),
        ("a,b", "a.csv: "),
        ("a,b,a\n1,2,3\n", "a.csv, header: "),
        ("a,\n1,2\n", "a.csv, header: "),
        ("a;b\n1;2\n", "a.csv, header: "),
        (b"a\xff,b\n1,2\n", "a.csv, header: "),
        ("a,b\n1,2\n3\n", "a.csv, row 2: "),
        ("a,b\n1,2\n3,4,5\n", "a.csv, row 2: "),
        (b"a,b\n1,x\n2,\xff\n", "a.csv, row 2: "),
        ('a,b\n1,x\n2,"open\n', "a.csv, row 2: "),
        ('a,b\n1,x\n2,"open', "a.csv, row 2: "),
        ('a,b\n1,x\n2,"an ""open"" one', "a.csv, row 2: "),
        ('a,b\n1,"%s' % ("x\n" * 50_000), "a.csv, row 1: "),
    ],
)
def test_a_mistake_is_named_by_its_row(tmp_path: Path, content: str | bytes, place: str) -> None:
    assert refusal(put(tmp_path, "a.csv", content)).startswith(place)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
@pytest.mark.parametrize("cell", ["x", '"x"', '""', '"a ""b"""', '5" disk', '"two\nlines"'])
def test_a_closed_last_cell_is_not_taken_for_an_open_one(
    tmp_path: Path, cell: str, end: str
) -> None:
    assert len(table_of(put(tmp_path, "a.csv", f"a,b\n1,{cell}{end}"))) == 1


def test_a_row_beyond_the_bound_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "MAX_ROW_BYTES", 1 << 20)
    path = put(tmp_path, "a.csv", "a,b\n1,x\n2,%s\n" % ("x" * 900_000))
    assert table_of(path)["a"].to_pylist() == [1, 2]
    path = put(tmp_path, "a.csv", "a,b\n1,x\n2,%s\n" % ("x" * 3_000_000))
    refusal(path)


def test_a_header_or_nothing_is_no_rows_where_the_table_is_known(tmp_path: Path) -> None:
    known = schema(b=pa.float32(), a=pa.int64())
    for content in ("", "\n", "\ufeff"):
        assert table_of(put(tmp_path, "a.csv", content), known).equals(known.empty_table())
    for content in ("a,b", "a,b\n"):
        table = table_of(put(tmp_path, "a.csv", content), known)
        assert table.equals(schema(a=pa.int64(), b=pa.float32()).empty_table())


def test_a_header_of_too_many_columns_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(",".join(f"c{n}" for n in range(100_000)) + "\n")
    with refuses(InputError):
        open_table_file(str(path))


@pytest.mark.parametrize(
    "start", ["\n" * (1 << 20), ",".join(f"{'x' * 1_000}{n}" for n in range(2_000)) + "\n"]
)
def test_a_header_ends_within_the_first_mebibyte(tmp_path: Path, start: str) -> None:
    path = put(tmp_path, "a.csv", start + "a,b\n1,2\n")
    assert "its first MiB has no header" in refusal(path)
    assert "its first MiB has no header" in refusal(path, schema(a=pa.int64()))


@pytest.mark.parametrize(
    ("header", "cause"),
    [
        (b"a\xa0b,c", "is not UTF-8"),
        ("a\N{NO-BREAK SPACE}b,c".encode(), r"'a\xa0b' has a character that can't be seen"),
        (b'"a\nb",c', r"'a\nb' has a line break: close the quote"),
        (b'"a,b', r"'a,b\n1,2\n' has a line break: close the quote"),
        ("a,b".encode("utf-16-le"), r"'a\x00' has a character that can't be seen"),
    ],
)
def test_a_name_that_can_not_be_seen_is_refused_by_its_cause(
    tmp_path: Path, header: bytes, cause: str
) -> None:
    assert cause in refusal(put(tmp_path, "a.csv", header + b"\n1,2\n"))
