"""Text files in other encodings, and CSV with other marks."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from compactor.files.csv_rows import cut_rows
from compactor.files.text_options import TextOptions
from compactor.files.write import SinkOptions, open_table_sink
from tests.files.reading import put, refusal, schema, table_of
from tests.files.test_csv_rows import Memory
from tests.support.wording import refuses


def rows_of(folder: Path, content: str | bytes, name: str = "a.csv", **options: Any) -> list[Any]:
    rows: list[Any] = table_of(
        put(folder, name, content), options=TextOptions(**options)
    ).to_pylist()
    return rows


@pytest.mark.parametrize("mark", [";", "\t", "|", " ", "~"])
def test_cells_stand_between_any_delimiter(tmp_path: Path, mark: str) -> None:
    text = "a,b\n1,'x,y'\n2,'it''s'\n".replace(",", mark)
    rows = rows_of(tmp_path, text, delimiter=mark, quote="'")
    assert rows == [{"a": 1, "b": f"x{mark}y"}, {"a": 2, "b": "it's"}]


def test_quotes_are_characters_where_none_is_given(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, 'a,b\n"x,1\ny",2\n', quote="")
    assert rows == [{"a": '"x', "b": 1}, {"a": 'y"', "b": 2}]


def test_numbers_have_a_decimal_comma(tmp_path: Path) -> None:
    text = "i;d;t;when;e\n1;1,5;1.5;2026-01-02;-1,5e3\n-2;3;2;2026-01-03T00:00:00.5;\n"
    table = table_of(put(tmp_path, "a.csv", text), options=TextOptions(delimiter=";", decimal=","))
    assert [str(t) for t in table.schema.types] == [
        "int64", "double", "string", "timestamp[us]", "double",
    ]  # fmt: skip
    assert table.column("d").to_pylist() == [1.5, 3.0]
    assert table.column("t").to_pylist() == ["1.5", "2"]
    assert table.column("e").to_pylist() == [-1500.0, None]


def test_a_decimal_comma_may_come_late_and_in_given_types(tmp_path: Path) -> None:
    text = "d;x\n" + "1;7\n" * 5000 + "0,25;7\n"
    options = TextOptions(delimiter=";", decimal=",")
    known = schema(d=pa.decimal128(9, 2))
    path = put(tmp_path, "a.csv", text)
    assert table_of(path, options=options).column("d").to_pylist()[-2:] == [1.0, 0.25]
    assert str(table_of(path, known, options=options).column("d")[-1]) == "0.25"
    short = put(tmp_path, "b.csv", "d;x\n1;7\n0.25;7\n")
    message = refusal(short, schema(d=pa.float64()), options=options)
    assert message.startswith("b.csv, row 2: column 'd': '0.25' can't be read as double")


def test_without_a_header_columns_are_numbered_or_named(tmp_path: Path) -> None:
    assert rows_of(tmp_path, "1,x\n2,y\n", header=False) == [
        {"c1": 1, "c2": "x"},
        {"c1": 2, "c2": "y"},
    ]
    named = rows_of(tmp_path, "1,x\n2,y\n", header=False, names=("n", "s"))
    assert named == [{"n": 1, "s": "x"}, {"n": 2, "s": "y"}]
    path = put(tmp_path, "a.csv", "1,x\n2\n")
    assert refusal(path, options=TextOptions(header=False)).startswith("a.csv, row 2: expected 2")


def test_the_name_of_one_column_may_have_other_delimiters_in_quotes(tmp_path: Path) -> None:
    assert rows_of(tmp_path, '"a|b"\n1\n') == [{"a|b": 1}]
    for above in ("", "\n", "# of the export\n"):
        for name in ("a|b", "a,b"):
            found = rows_of(tmp_path, f'{above}"{name}"\n1\n', comment="#")
            assert found == [{name: 1}], above
    path = put(tmp_path, "a.csv", "a|b\n1|2\n")
    assert "name the delimiter" in refusal(path)


def test_blank_lines_are_nulls_of_one_column_without_a_header(tmp_path: Path) -> None:
    for mark in ("", "\ufeff"):
        found = rows_of(tmp_path, f"{mark}\n\na\n\nb\n", header=False)
        assert [row["c1"] for row in found] == [None, None, "a", None, "b"]
    assert len(rows_of(tmp_path, "\n\n1,x\n2,y\n", header=False)) == 2


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_of_comment_are_skipped(tmp_path: Path, end: str) -> None:
    lines = ["# of the export", "a", "#,#", "1", "# x", "2", '"#3"', "# the end"]
    text = end.join(lines)
    assert rows_of(tmp_path, text, comment="#") == [{"a": "1"}, {"a": "2"}, {"a": "#3"}]


@given(
    lines=st.lists(st.sampled_from(["#", "# a;b", "1;2", "3;'#'", ";", "'x\n#y';z"]), max_size=12),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    block=st.integers(12, 40),
)
def test_comments_and_marks_do_not_depend_on_blocks(lines: list[str], end: str, block: int) -> None:
    options = TextOptions(delimiter=";", quote="'", comment="#", header=False)
    data = end.join(lines).encode()
    kept = [line for line in lines if not line.startswith("#")]
    expected = list(csv.reader(io.StringIO("\n".join(kept)), delimiter=";", quotechar="'"))
    found = []
    for rows in cut_rows("a.csv", Memory(data), 2, block, options):
        cells = [rows.column(place).to_pylist() for place in range(2)]
        found += [[(cell or b"").decode() for cell in row] for row in zip(*cells, strict=True)]
    assert found == expected


ENCODED = [
    ("latin-1", "latin-1", "Müller"),
    ("cp1252", "cp1252", "5 €"),
    ("utf-16", "utf-16", "Müller €"),
    ("utf-16", "utf-16-le", "ü"),
    ("utf-16", "utf-16-be", "ü"),
    ("utf-16-be", "utf-16-be", "ü"),
    ("utf-8", "utf-8-sig", "ü"),
    ("shift_jis", "shift_jis", "日本"),
    ("gb18030", "gb18030", "日本"),
]


@pytest.mark.parametrize(("name", "codec", "text"), ENCODED)
def test_an_encoding_is_that_of_csv_and_of_json(
    tmp_path: Path, name: str, codec: str, text: str
) -> None:
    csv_text = f"name,n\n{text},1\n" * 1
    assert rows_of(tmp_path, csv_text.encode(codec), encoding=name) == [{"name": text, "n": 1}]
    lines = f'{{"name": "{text}"}}\n{{"name": null}}\n'.encode(codec)
    assert rows_of(tmp_path, lines, "a.ndjson", encoding=name) == [{"name": text}, {"name": None}]


def test_text_of_another_encoding_is_named_by_row_and_column(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", b"a,b\n1,x\n2,\x81\n")
    message = refusal(path, options=TextOptions(encoding="cp1252"))
    assert message == "a.csv, row 2: column 'b' is not valid cp1252: name another encoding"
    odd = put(tmp_path, "b.csv", "a,b\n1,é\n".encode("utf-16-le") + b"x")
    assert refusal(odd, options=TextOptions(encoding="utf-16")).startswith("b.csv, row 2")


def test_bad_text_is_a_bad_row(tmp_path: Path) -> None:
    from compactor.files.read import open_table_file

    path = put(tmp_path, "a.csv", b"a,b\n1,x\n2,\x81\n3,y\n")
    options = TextOptions(encoding="cp1252")
    with open_table_file(path, options=options, leaves_out_bad_rows=True) as file:
        assert [row["a"] for batch in file for row in batch.to_pylist()] == [1, 3]
        assert [row.ordinal for row in file.bad_rows] == [1]


@pytest.mark.parametrize(
    "options",
    [
        {"delimiter": ";;"},
        {"delimiter": ""},
        {"delimiter": "1"},
        {"quote": ","},
        {"decimal": ":"},
        {"encoding": "klingon"},
        {"encoding": "rot13"},
        {"comment": "//"},
        {"names": ("a",)},
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with refuses(ValueError):
        TextOptions(**options)


@pytest.mark.parametrize(("ending", "open_file"), [(".bz2", bz2.open), (".xz", lzma.open)])
def test_bzip2_and_xz_are_read_and_written(tmp_path: Path, ending: str, open_file: Any) -> None:
    table = pa.table({"a": [1, 2], "s": ["x", "y" * 100_000]})
    for name in (f"a.csv{ending}", f"a.ndjson{ending}"):
        path = str(tmp_path / name)
        with open_table_sink(path, table.schema) as sink:
            sink.write(table.to_batches()[0])
        assert table_of(path).equals(table)
        with open_file(path) as file:
            whole = file.read()
        assert b"yyy" in whole
        stored = Path(path).read_bytes()
        half = put(tmp_path, f"half-{name}", stored[: len(stored) // 2])
        assert "cut off" in refusal(half) or "damaged" in refusal(half)
        odd = put(tmp_path, f"odd-{name}", whole)
        assert "damaged" in refusal(odd)


@pytest.mark.parametrize(
    ("ending", "compress", "padding"),
    [
        (".bz2", bz2.compress, b""),
        (".xz", lzma.compress, bytes(8)),
        (".gz", gzip.compress, bytes(8)),
        (".zst", zstandard.compress, b""),
    ],
)
def test_each_of_several_compressed_streams_is_read_whole_or_refused(
    tmp_path: Path, ending: str, compress: Callable[[bytes], bytes], padding: bytes
) -> None:
    """Such as programs write that compress in parallel, or that append."""
    texts = [b"".join(b'{"n": %d}\n' % (n + k) for k in range(100)) for n in (0, 100, 200)]
    streams = [compress(text) for text in texts]
    path = put(tmp_path, f"a.ndjson{ending}", padding.join([*streams, b""]))
    assert table_of(path).column("n").to_pylist() == list(range(300))
    for stream in (1, 2):
        for place in range(4):
            damaged = bytearray(streams[stream])
            damaged[place] ^= 0x55
            found = put(tmp_path, f"a.ndjson{ending}", b"".join([streams[0], damaged, streams[2]]))
            assert "damaged" in refusal(found) or "cut off" in refusal(found)
    cut = put(tmp_path, f"a.ndjson{ending}", b"".join(streams)[:-3])
    assert "cut off" in refusal(cut) or "damaged" in refusal(cut)


def test_csv_is_written_with_the_marks_given(tmp_path: Path) -> None:
    path = str(tmp_path / "a.csv")
    table = pa.table({"a": [1, None], "s": ["it's", "x;y"]})
    text = TextOptions(delimiter=";", quote="'", header=False)
    with open_table_sink(path, table.schema, SinkOptions(text=text)) as sink:
        sink.write(table.to_batches()[0])
    assert Path(path).read_text() == "1;'it''s'\n;'x;y'\n"
    assert table_of(path, options=text).column("c2").to_pylist() == ["it's", "x;y"]
