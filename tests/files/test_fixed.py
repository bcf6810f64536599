"""Columns of fixed width: places, padding and what does not fit, read and written."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.errors import InputError
from compactor.files.layouts import Align, FixedColumn, FixedLayout
from compactor.files.read import open_table_file
from compactor.files.write import SinkOptions, open_table_sink
from tests.files.reading import put, refusal, schema, table_of
from tests.support.wording import refuses

LAYOUT = FixedLayout(
    (
        FixedColumn(name="name", start=0, width=6, align=Align.LEFT),
        FixedColumn(name="size", start=6, width=5, align=Align.RIGHT, pad="0"),
        FixedColumn(name="share", start=12, width=4),
    )
)


def write(path: Path, table: pa.Table, layout: FixedLayout = LAYOUT) -> str:
    with open_table_sink(str(path), table.schema, SinkOptions(layout=layout)) as sink:
        for batch in table.to_batches(max_chunksize=2):
            sink.write(batch)
    return str(path)


def test_columns_are_read_from_their_places(tmp_path: Path) -> None:
    path = put(tmp_path, "a.txt", "Zoë   -0012 0.5\r\n\nEve   00000\nnobody\nO\n")
    table = table_of(path, layout=LAYOUT)
    assert table.schema == schema(name=pa.string(), size=pa.int64(), share=pa.float64())
    assert table.to_pylist() == [
        {"name": "Zoë", "size": -12, "share": 0.5},
        {"name": "Eve", "size": 0, "share": None},
        {"name": "nobody", "size": None, "share": None},
        {"name": "O", "size": None, "share": None},
    ]


def test_a_type_of_the_layout_holds_unless_another_is_given(tmp_path: Path) -> None:
    layout = FixedLayout(
        (
            FixedColumn(name="n", start=0, width=3, type=pa.string()),
            FixedColumn(name="m", start=3, width=2, type=pa.int32()),
        )
    )
    path = put(tmp_path, "a.txt", "00112\n")
    assert table_of(path, layout=layout).to_pylist() == [{"n": "001", "m": 12}]
    assert table_of(path, schema(m=pa.float64()), layout=layout)["m"].to_pylist() == [12.0]


@pytest.mark.parametrize(
    ("line", "ordinal"),
    [("nobody001", 1), ("nobody00012 0.5 more", 1), ("nobody0001x 0.5", None)],
)
def test_lines_that_do_not_fit_their_columns_are_bad_rows(
    tmp_path: Path, line: str, ordinal: int | None
) -> None:
    layout = LAYOUT if ordinal is not None else typed()
    path = put(tmp_path, "a.txt", f"a     00001 1.5   \n{line}\n")
    refusal(path, layout=layout)
    with open_table_file(path, layout=layout, leaves_out_bad_rows=True) as file:
        assert [row.ordinal for row in file.bad_rows] == [1]
        assert pa.Table.from_batches(file).num_rows == 1


def typed() -> FixedLayout:
    name, _, share = LAYOUT.columns
    return FixedLayout(
        (
            name,
            FixedColumn(name="size", start=6, width=5, type=pa.int64(), align=Align.RIGHT, pad="0"),
            share,
        )
    )


def test_values_are_written_to_their_places(tmp_path: Path) -> None:
    table = pa.table(
        {"share": [0.5, None, 12.0], "name": ["Zoë", None, "nobody"], "size": [-12, 0, None]}
    )
    path = Path(write(tmp_path / "a.txt", table))
    assert path.read_text() == "Zoë   -0012  0.5\n      00000     \nnobody      12.0\n"
    assert table_of(str(path), layout=LAYOUT).equals(table.select(["name", "size", "share"]))


@pytest.mark.parametrize(
    ("column", "value"),
    [("name", "too long"), ("name", "a\nb"), ("size", 123_456), ("share", 1.25e-7)],
)
def test_a_value_without_room_is_refused_by_row_and_column(
    tmp_path: Path, column: str, value: object
) -> None:
    rows = [{"name": "a", "size": 1, "share": 1.5}] * 4
    table = pa.Table.from_pylist([*rows, {**rows[0], column: value}])
    with refuses(InputError, "row 5", repr(column)):
        write(tmp_path / "a.txt", table)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("align", "pad", "good", "bad"),
    [
        (Align.LEFT, "0", 1, 10),
        (Align.LEFT, "0", "a", "b0"),
        (Align.LEFT, "*", "*a", "a*"),
        (Align.RIGHT, "0", "0", ""),
        (Align.RIGHT, "0", "7", "007"),
        (Align.RIGHT, "0", -7, math.nan),
        (Align.RIGHT, "*", "a*", "*a"),
    ],
)
def test_a_value_that_padding_would_change_is_refused_by_row_and_column(
    tmp_path: Path, align: Align, pad: str, good: object, bad: object
) -> None:
    layout = FixedLayout((FixedColumn(name="x", start=0, width=5, align=align, pad=pad),))
    write(tmp_path / "a.txt", pa.table({"x": [good, None] * 3}), layout)
    values = pa.array([good, None, good, bad])
    with refuses(InputError, "row 4", "'x'", "`pad`"):
        write(tmp_path / "b.txt", pa.table({"x": values}), layout)


def test_a_first_value_that_would_be_read_as_the_mark_of_utf_8_is_refused(tmp_path: Path) -> None:
    layout = FixedLayout((FixedColumn(name="x", start=0, width=5),))
    with refuses(InputError, "row 1", "'x'", "UTF-8"):
        write(tmp_path / "a.txt", pa.table({"x": ["\ufeffa"]}), layout)
    write(tmp_path / "b.txt", pa.table({"x": ["a", "\ufeffb"]}), layout)


@pytest.mark.parametrize("pad", [" ", "#"])
def test_blanks_around_a_value_are_no_padding_that_is_refused(tmp_path: Path, pad: str) -> None:
    column = FixedColumn(name="x", start=0, width=5, align=Align.LEFT, pad=pad, type=pa.string())
    layout = FixedLayout((column, FixedColumn(name="k", start=5, width=1, type=pa.string())))
    table = pa.table({"x": [" a", "b "], "k": ["1", "2"]})
    path = write(tmp_path / "a.txt", table, layout)
    assert [text.strip() for text in table_of(path, layout=layout)["x"].to_pylist()] == ["a", "b"]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.one_of(st.text("a0-+*", min_size=1, max_size=4), st.none()), min_size=1),
    st.sampled_from(Align),
    st.sampled_from("0*a-"),
)
def test_values_come_back_from_any_padding_or_are_refused(
    tmp_path_factory: pytest.TempPathFactory, values: list[str | None], align: Align, pad: str
) -> None:
    column = FixedColumn(name="x", start=0, width=4, align=align, pad=pad, type=pa.string())
    layout = FixedLayout((column, FixedColumn(name="k", start=4, width=1, type=pa.string())))
    for value in values:
        table = pa.table({"x": pa.array([value], pa.string()), "k": ["k"]})
        try:
            path = write(tmp_path_factory.mktemp("fixed") / "a.txt", table, layout)
        except InputError:
            assert value is not None and pad in f"{value[0]}{value[-1]}0"
        else:
            assert table_of(path, layout=layout).equals(table)


@pytest.mark.parametrize("columns", [("name", "size"), ("name", "size", "share", "more")])
def test_columns_and_places_belong_together(tmp_path: Path, columns: tuple[str, ...]) -> None:
    with refuses(InputError):
        write(tmp_path / "a.txt", pa.table({name: ["1"] for name in columns}))


WORDS = st.text("aé0 .-", max_size=6).map(str.strip)


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            # An empty text and a null look alike.
            "name": st.one_of(st.none(), WORDS.filter(bool)),
            "size": st.one_of(st.none(), st.integers(-9999, 99_999)),
            "share": st.one_of(st.none(), st.sampled_from([0.5, -1.0, 99.5, 0.25])),
        }
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=100, deadline=None)
@given(ROWS)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]]
) -> None:
    known = schema(name=pa.string(), size=pa.int64(), share=pa.float64())
    table = pa.Table.from_pylist(rows, known)
    path = write(tmp_path_factory.mktemp("fixed") / "a.txt.gz", table)
    assert table_of(path, known, layout=LAYOUT).equals(table)
