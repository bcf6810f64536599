"""Fragments written by earlier builds, of this version and those before, still read as the same rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden.build import FOLDERS, golden_tables
from tests.support.fragments import read_random, read_stream, rows_of
from tests.support.spec_reader import Fragment

FILES = [path for folder in FOLDERS for path in sorted(folder.glob("*.frag"))]


def test_all_golden_fragments_are_there() -> None:
    for version, folder in enumerate(FOLDERS, 1):
        names = sorted(path.stem for path in FILES if path.parent == folder)
        assert sorted(golden_tables(version)) == names


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_golden_fragments_read_as_the_rows_they_were_written_from(path: Path) -> None:
    data = path.read_bytes()
    version = int(path.parent.name[1:])
    expected = json.loads(path.with_suffix(".json").read_text())
    table, _, _ = golden_tables(version)[path.stem]
    assert [repr(row) for row in rows_of(table)] == expected
    assert [repr(row) for row in rows_of(read_random(data))] == expected
    assert [repr(row) for row in rows_of(read_stream(data))] == expected
    assert Fragment(data).version == version
    assert Fragment(data).rows == len(expected)
    assert f"{Fragment(data).row_hash():016x}" == Fragment(data).footer["row_hash"]
