"""Rows and cells of CSV are cut as plain Python cuts them, wherever blocks of the file end."""

from __future__ import annotations

import io
import re

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.errors import InputError
from compactor.files.byte_source import after
from compactor.files.csv_rows import cut_rows

Cell = bytes | None
_CELL = re.compile(rb'"((?:[^"]|"")*+)"([^,\r\n]*)|(?!")([^,\r\n]*)')
_PIECES = [b"a", b"bc", b",", b",", b'"', b'""', b"\n", b"\n", b"\r\n", b"\r", b" ", b"\xff", b"\0"]


class Memory(io.BytesIO):
    """A source in memory."""

    def read_after(self, room: int, size: int, /) -> npt.NDArray[np.uint8]:
        return after(room, self.read(size))


class Slow(Memory):
    """A source that gives fewer bytes than it is asked for."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(max(1, (size or 1) * 2 // 3))


def plain(data: bytes, columns: int) -> tuple[list[list[Cell]], list[tuple[int, int]]] | None:
    """Good rows, and the places of others with their cells; None where a quote is never closed."""
    rows: list[list[Cell]] = []
    at, row = 0, list[Cell]()
    while at < len(data):
        if columns > 1 and not row and data[at : at + 1] in b"\r\n":
            at += 1
            continue
        while (found := _CELL.match(data, at)) is not None:
            quoted, rest, bare = found.groups()
            row.append(bare or None if quoted is None else quoted.replace(b'""', b'"') + rest)
            at = found.end()
            if data[at : at + 1] != b",":
                break
            at += 1
        else:
            return None
        at += 2 if data[at : at + 2] == b"\r\n" else 1
        rows.append(row)
        row = []
    odd = [(place, len(row)) for place, row in enumerate(rows) if len(row) != columns]
    return [row for row in rows if len(row) == columns], odd


@given(
    st.lists(st.sampled_from(_PIECES), max_size=30).map(b"".join),
    st.integers(1, 3),
    st.integers(1, 40),
)
def test_cells_are_those_of_plain_python_wherever_blocks_end(
    data: bytes, columns: int, block_bytes: int
) -> None:
    header = b",".join([b"name"] * columns) + b"\n"
    expected = plain(data, columns)
    rows: list[list[Cell]] = []
    odd: list[tuple[int, int]] = []
    ordinals: list[int] = []
    try:
        for block in cut_rows("a.csv", Slow(header + data), columns, 30 + block_bytes):
            rows += map(
                list,
                zip(
                    *(column.to_pylist() for column in map(block.column, range(columns))),
                    strict=True,
                ),
            )
            odd += [(row.ordinal, row.cells) for row in block.odd]
            ordinals += block.ordinals.tolist()
    except InputError as error:
        is_long = "longer" in str(error)
        assert expected is None or (is_long and len(header + data) > 30 + block_bytes)
        return
    assert expected == (rows, odd)
    assert sorted([*ordinals, *(place for place, _ in odd)]) == list(range(len(rows) + len(odd)))


_LONG_PIECES = [b"x" * 63, b"y" * 15, b"abcdefg", b"z", b"\n", b",", b'""', b'""', b'""' * 40, b'"']


@given(st.lists(st.sampled_from(_LONG_PIECES), max_size=30).map(b"".join), st.booleans())
def test_quotes_of_long_cells_are_found_at_every_distance(text: bytes, is_quoted: bool) -> None:
    row = b'"' + text.replace(b'"', b'""') + b'"' if is_quoted else b'"' + text
    expected = plain(row + b",1\n", 2)
    try:
        rows = [
            [cell[0], cell[1]]
            for block in cut_rows("a.csv", Memory(b"a,b\n" + row + b",1\n"), 2, 1 << 20)
            for cell in zip(block.column(0).to_pylist(), block.column(1).to_pylist(), strict=True)
        ]
    except InputError:
        assert expected is None
        return
    assert expected is not None
    assert rows == expected[0]
    if is_quoted:
        assert rows == [[text, b"1"]]


@pytest.mark.parametrize("lines", [b"x\n", b"\n\r\n\nx\n", b"\xef\xbb\xbf\nx\n"])
def test_lines_before_the_header_are_no_rows(lines: bytes) -> None:
    [block] = cut_rows("a.csv", Memory(lines + b"1\n"), 1, 1 << 20)
    assert (block.ordinals.tolist(), block.column(0).to_pylist()) == ([0], [b"1"])


def test_a_row_is_as_long_as_a_block_at_most() -> None:
    for size in (100, 101):
        row = b"x" * (size - 1) + b"\n"
        source = Memory(b"a\n" + b"y\n" * 25 + row)
        if size == 101:
            with pytest.raises(InputError):
                list(cut_rows("a.csv", source, 1, 100))
        else:
            assert sum(len(block.ordinals) for block in cut_rows("a.csv", source, 1, 100)) == 26


def test_rows_that_end_far_into_the_next_block_are_whole() -> None:
    sizes = [3, 70_000, 200_000, 1, 65_536, 90_000] * 5
    lines = [b"%d,%s" % (number, b"x" * size) for number, size in enumerate(sizes)]
    source = Memory(b"a,b\n" + b"\n".join(lines))
    blocks = list(cut_rows("a.csv", source, 2, 256 << 10))
    assert len(blocks) > 5
    found = [cell for block in blocks for cell in block.column(1).to_pylist()]
    assert list(map(len, found)) == sizes


def test_many_rows_of_other_widths_come_in_pieces() -> None:
    lines = [b"x" if n % 300 else b"1,2" for n in range(200_000)]
    blocks = list(cut_rows("a.csv", Memory(b"a,b\n" + b"\n".join(lines)), 2, 1 << 22))
    assert max(len(block.odd) for block in blocks) < 100_000
    places = [(n, True) for block in blocks for n in block.ordinals.tolist()]
    places += [(row.ordinal, False) for block in blocks for row in block.odd]
    assert sorted(places) == [(n, n % 300 == 0) for n in range(200_000)]
