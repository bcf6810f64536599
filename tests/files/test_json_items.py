"""Files that are one JSON array of objects."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.files.read import open_table_file
from compactor.files.text_options import TextOptions
from lsm_fragment.native.arrays.json_items import ItemLines
from tests.files.reading import put, refusal, table_of

ROWS = [{"n": 1, "s": 'a,"]}\n', "l": [1, 2], "o": {"x": [None]}}, {"n": 2.5, "s": "\\"}]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("end", ["", "\n\n"])
def test_an_array_has_the_rows_of_its_items(tmp_path: Path, indent: int | None, end: str) -> None:
    text = "\n " + json.dumps(ROWS, indent=indent) + end
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    expected = table_of(put(tmp_path, "a.ndjson", lines))
    assert table_of(put(tmp_path, "a.json", text)).equals(expected)
    assert table_of(put(tmp_path, "b.json.gz", gzip.compress(text.encode()))).equals(expected)
    utf16 = put(tmp_path, "c.json", text.encode("utf-16"))
    assert table_of(utf16, options=TextOptions(encoding="utf-16")).equals(expected)
    assert table_of(put(tmp_path, "d.json", lines)).equals(expected)


items = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(rows=st.lists(items, max_size=5), indent=st.sampled_from([None, 2]), size=st.integers(1, 40))
def test_items_become_lines_wherever_blocks_end(
    rows: list[Any], indent: int | None, size: int
) -> None:
    data = json.dumps(rows, indent=indent, ensure_ascii=False).encode()
    lines = ItemLines()
    found = b"".join(lines.of(data[at : at + size]) for at in range(0, len(data), size))
    assert lines.is_closed
    assert len(found) == len(data)
    assert [json.loads(line) for line in found.split(b"\n") if line.strip()] == rows


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[{"n": 1},\n {"n": "x"}]', "item 2"),
        ('[{"n": 1}, 2]', "item 2: is not a JSON object but a number: write one object per item"),
        ('[{"n": 1}, [2]]', "item 2: is not a JSON object but an array: write one object per item"),
        ('[{"n": 1},, {"n": 2}]', "item 2"),
        ('[{"n": 1},]', "item 2"),
        ('[{"n": 1} {"n": 2}]', "item 1"),
        ('[{"n": 1}] x', "item 1"),
        ('[{"n": 1}], {"n": 2}', "item"),
        ('[{"s": "a\nb"}]', "item 1"),
        ('[{"n": 1}, {"n": 2}', "never ends"),
        ('[{"n": 1}, {"n": ', "never ends"),
        ("[]", "has no rows"),
    ],
)
def test_a_mistake_is_named_by_its_item(tmp_path: Path, text: str, place: str) -> None:
    assert place in refusal(put(tmp_path, "a.json", text))


def test_a_bad_item_is_left_out_like_a_bad_line(tmp_path: Path) -> None:
    path = put(tmp_path, "a.json", '[{"n": 1}, 7, {"n": "x"}, {"n": 2}]')
    with open_table_file(path, leaves_out_bad_rows=True) as file:
        assert [row["n"] for batch in file for row in batch.to_pylist()] == [1, 2]
        assert [row.ordinal for row in file.bad_rows] == [1, 2]


def test_lines_that_are_arrays_stay_bad_lines(tmp_path: Path) -> None:
    path = put(tmp_path, "a.ndjson", '[{"n": 1}]\n{"n": 2}\n')
    assert refusal(path).startswith("a.ndjson, line 1")
