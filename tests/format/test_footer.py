"""Footers, whole and without their columns."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from format.errors import SchemaError
from format.footer import Footer, FooterHead
from format.reader import FragmentReader
from format.writer import FragmentWriter, WriterOptions
from tests.support.fragments import BytesSource, NonSeekableSink, sort_schema, write_fragment
from tests.support.spec_reader import Fragment


def footer_document() -> dict:
    table = pa.table({"k": range(10), "v": [f'{n}","columns":[{{' for n in range(10)]})
    document: dict = Fragment(write_fragment(table, "k", WriterOptions(max_rows=4))).footer
    return document


def test_a_head_says_what_the_whole_footer_says() -> None:
    data = json.dumps(footer_document()).encode()
    whole, head = Footer.from_bytes(data), FooterHead.from_bytes(data)
    assert (head.rows, head.row_hash, head.group_rows) == (whole.rows, whole.row_hash, [4, 4, 2])


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 11},
        {"rows": "10"},
        {"rows": None},
        {"row_hash": "xyz"},
        {"row_hash": "-1"},
        {"row_hash": "1" * 40},
        {"row_groups": []},
        {"row_groups": {"rows": [4, 4, 2.5]}},
    ],
)
def test_what_is_no_footer_is_refused_either_way(change: dict) -> None:
    data = json.dumps({**footer_document(), **change}).encode()
    for kind in (Footer, FooterHead):
        with pytest.raises(SchemaError):
            kind.from_bytes(data)
    with pytest.raises(SchemaError):
        FooterHead.from_bytes(data[:-30])


def test_a_writers_summary_is_that_of_its_footer_and_has_the_whole_keys() -> None:
    ends = [f"{n:03d}" for n in range(100)]
    table = pa.table(
        {
            "k": ["k" * 70 + end for end in ends],
            "v": ["x" * n for n in range(100)],
            "n": [None] * 100,
        }
    )
    sink = NonSeekableSink()
    with FragmentWriter(sink, table.schema, sort_schema("k"), WriterOptions(max_rows=30)) as writer:
        for batch in table.to_batches():
            writer.write(batch)
        written = writer.finish().summary
    data = sink.getvalue()
    footer = FragmentReader(BytesSource(data), len(data), "mem").footer
    first, last = ("k" * 70 + "000",), ("k" * 70 + "099",)
    assert written == replace(footer.summary(), first_key=first, last_key=last)
    assert (written.rows, written.row_groups) == (100, 4)
    assert list(written.columns) == ["k", "v"]
    assert written.peak_row_bytes >= 90
    assert footer.row_groups[0].first_key == ("k" * 64,)
