"""Fragments written by earlier builds of this version still read as the same rows."""

from __future__ import annotations

import json

import pytest

from tests.golden.build import FOLDER, golden_tables
from tests.support.fragments import read_random, read_stream, rows_of
from tests.support.spec_reader import Fragment

NAMES = sorted(path.stem for path in FOLDER.glob("*.frag"))


def test_all_golden_fragments_are_there() -> None:
    assert sorted(golden_tables()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_golden_fragments_read_as_the_rows_they_were_written_from(name: str) -> None:
    data = (FOLDER / f"{name}.frag").read_bytes()
    expected = json.loads((FOLDER / f"{name}.json").read_text())
    table, _, _ = golden_tables()[name]
    assert [repr(row) for row in rows_of(table)] == expected
    assert [repr(row) for row in rows_of(read_random(data))] == expected
    assert [repr(row) for row in rows_of(read_stream(data))] == expected
    assert Fragment(data).rows == len(expected)
    assert f"{Fragment(data).row_hash():016x}" == Fragment(data).footer["row_hash"]
