"""Damaged bytes: whatever changes in a file, a reader reads it or raises `InputError`, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.errors import InputError
from compactor.files.layouts import Align, FixedColumn, FixedLayout, LineLayout, XmlLayout
from compactor.files.line_patterns import line_pattern
from compactor.files.read import open_table_file

SAMPLES = Path(__file__).parent / "samples"
GROK = "%{TIMESTAMP_ISO8601:at} %{LOGLEVEL:level} %{INT:n:int} %{GREEDYDATA:message}"
SEEDS: dict[str, tuple[bytes, Any]] = {
    "a.log": (
        b"2024-01-31T10:00:00Z INFO 12 started\n2024-01-31T10:00:01Z ERROR -7 broke\n\tat Main\n",
        LineLayout(line_pattern(GROK, spans_lines=True), r"\d{4}-"),
    ),
    "a.txt": (
        "M\u00fcller00012 1.5\nEve   -0003 0.25\n".encode(),
        FixedLayout(
            (
                FixedColumn(name="name", start=0, width=6),
                FixedColumn(name="n", start=6, width=5, align=Align.RIGHT, pad="0"),
            )
        ),
    ),
    "a.xml": (
        b'<?xml version="1.0"?>\n<rows xmlns:x="u"><row n="1"><x:a>t&amp;u</x:a><l><item>1</item></l>'
        b'</row><row n="2.5"><x:a b="c">t</x:a></row><![CDATA[x]]><!-- c --></rows>',
        None,
    ),
    "path.xml": (b"<a><b><c>1</c><c>2</c></b><b/></a>", XmlLayout(("b", "c"))),
    **{path.name: (path.read_bytes(), None) for path in sorted(SAMPLES.iterdir())},
}  # fmt: skip
TOKENS = st.sampled_from(
    [b"", b"\0", b"\xff", b"\n", b"\r\n", b"'", b"?", b"~", b"*", b"|", b"\\", b"UNA", b"UNB+", b"ISA",
     b"MSH|", b"UNZ", b"<", b">", b"</row>", b"<row>", b"&x;", b"<!DOCTYPE a>", b"\xc3\xbc", b"9" * 30]
)  # fmt: skip
CHANGES = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 12), TOKENS), max_size=5)


@pytest.mark.parametrize("name", SEEDS)
@pytest.mark.parametrize("tolerant", [True, False])
@settings(max_examples=150, deadline=None)
@given(changes=CHANGES)
def test_damaged_files_are_read_or_refused_by_name(
    name: str,
    tolerant: bool,
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[tuple[int, int, bytes]],
) -> None:
    data, layout = SEEDS[name]
    for at, width, token in changes:
        at %= len(data) + 1
        data = data[:at] + token + data[at + width :]
    path = tmp_path_factory.mktemp("hostile") / name
    path.write_bytes(data)
    rows = bad = 0
    try:
        with open_table_file(str(path), layout=layout, leaves_out_bad_rows=tolerant) as file:
            bad = len(file.bad_rows)
            for batch in file:
                batch.validate(full=True)
                rows += batch.num_rows
    except InputError as error:
        assert str(error).startswith(str(path)) and "\n" not in str(error)
    else:
        assert tolerant or not bad
