"""Lines of plain text by a pattern: groups, grok's names, records of several lines."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.files import records
from compactor.files.grok import GROK
from compactor.files.layouts import LineLayout
from compactor.files.line_patterns import line_pattern
from compactor.files.read import open_table_file
from tests.files.reading import put, refusal, schema, table_of
from tests.support.wording import says

TRACES = (
    "2024-01-31 INFO started\n"
    "2024-01-31 ERROR it broke\n"
    "java.lang.IllegalStateException: no\n"
    "\tat com.example.Main.run(Main.java:7)\n"
    "\n"
    "Caused by: nothing\r\n"
    "2024-02-01 INFO stopped\n"
)
DAY = r"(?P<day>\S+) (?P<level>\w+) (?P<message>.*)"


def lines(pattern: str, starts_with: str | None = None) -> LineLayout:
    return LineLayout(line_pattern(pattern, spans_lines=starts_with is not None), starts_with)


def test_named_groups_are_columns_whose_types_come_from_the_whole_file(tmp_path: Path) -> None:
    path = put(tmp_path, "app.log", "\ufeffa 1 2024-01-01\r\n\nb 2.5 \nc - 2024-01-03")
    table = table_of(path, layout=lines(r"(?P<who>\w+) (?:-|(?P<size>[\d.]+)) (?<day>\S*)"))
    assert table.schema == schema(who=pa.string(), size=pa.float64(), day=pa.date32())
    assert table["size"].to_pylist() == [1.0, 2.5, None]
    assert table["day"].null_count == 1


def test_grok_names_and_types_are_columns(tmp_path: Path) -> None:
    line = (
        '192.0.2.7 - frank [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 200 2326 '
        '"http://example.com/" "Mozilla/5.0 (X11)"\n'
        '2001:db8::7 - - [10/Oct/2000:13:55:37 -0700] "-" 408 - "-" "-"\n'
    )
    table = table_of(put(tmp_path, "access", line), layout=lines("%{COMBINEDAPACHELOG}"))
    first, second = table.to_pylist()
    assert (first["clientip"], first["auth"], first["verb"]) == ("192.0.2.7", "frank", "GET")
    assert (first["response"], first["bytes"], first["request"]) == (200, 2326, "/a?b=c")
    assert (second["clientip"], second["rawrequest"], second["bytes"]) == ("2001:db8::7", "-", None)
    assert table.schema.field("bytes").type == pa.int64()


@pytest.mark.parametrize(
    ("name", "matches", "others"),
    [
        ("IP", ["255.1.2.3", "::", "::1", "fe80::1%eth0", "::ffff:192.0.2.1"], ["256.1.1.1", "1::2::3"]),
        ("NUMBER", ["1", "-1.5", "+.5"], ["1e5", "a", "1."]),
        ("TIMESTAMP_ISO8601", ["2024-01-31T23:59:59.123Z", "2024-01-31 23:59"], ["2024-13-01T00:00"]),
        ("SYSLOGTIMESTAMP", ["Jan  1 00:00:00", "Dec 31 23:59:59"], ["Foo 1 00:00:00"]),
        ("HTTPDATE", ["10/Oct/2000:13:55:36 -0700"], ["10/10/2000:13:55:36"]),
        ("UUID", ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567"]),
        ("MAC", ["00:1b:44:11:3a:b7", "00-1B-44-11-3A-B7", "001b.4411.3ab7"], ["00:1b:44"]),
        ("QS", ['"a \\" b"', "'x'", '""'], ['"a', 'a"']),
        ("URI", ["https://user:pw@example.com:8080/a/b?c=d", "http://10.0.0.1/"], ["example.com", "://x"]),
        ("EMAILADDRESS", ["eve+x@example.com"], ["eve@", "@example.com"]),
        ("LOGLEVEL", ["WARN", "error", "Information"], ["loud"]),
        ("HOSTPORT", ["example.com:80", "10.1.1.1:443"], ["example.com", "example.com:0"]),
        ("PATH", ["/var/log/x.log", "C:\\Windows\\x"], ["var"]),
    ],
)  # fmt: skip
def test_a_grok_name_matches_what_it_is_known_for(
    name: str, matches: list[str], others: list[str]
) -> None:
    regex = re.compile(
        line_pattern(f"%{{{name}:x}}", spans_lines=False).regex.replace(r"\z", r"\Z")
    )
    assert all(regex.match(text) for text in matches)
    assert not any(regex.match(text) for text in others)


def test_every_grok_name_is_an_expression_of_re2() -> None:
    for name in GROK:
        assert line_pattern(f"%{{{name}:x}}", spans_lines=False).names[0] == "x"


def test_a_stack_trace_belongs_to_the_record_before(tmp_path: Path) -> None:
    path = put(tmp_path, "app.log", TRACES)
    table = table_of(path, layout=lines(DAY, r"\d{4}-"))
    assert table["level"].to_pylist() == ["INFO", "ERROR", "INFO"]
    message = table["message"][1].as_py()
    assert message.startswith("it broke\njava.lang") and message.endswith("Caused by: nothing")
    assert message.count("\n") == 4


def test_lines_that_do_not_match_are_bad_rows_with_their_line(tmp_path: Path) -> None:
    path = put(tmp_path, "app.log", TRACES)
    assert refusal(path, layout=lines(DAY + "!")).startswith("app.log, line 1: ")
    with open_table_file(
        path, layout=lines(r"(?P<day>\d\S+) .*"), leaves_out_bad_rows=True
    ) as file:
        assert [row.ordinal for row in file.bad_rows] == [2, 3, 4]
        for row in file.bad_rows:
            says(row.reason.replace(str(tmp_path), "<tmp>"))
        assert sum(batch.num_rows for batch in file) == 3


def test_values_that_are_not_of_their_type_are_bad_rows(tmp_path: Path) -> None:
    path = put(tmp_path, "n.log", b"1 a\nx b\n3 \xff\n4 d\n")
    layout = lines("%{NOTSPACE:n:int} (?P<s>.*)")
    refusal(path, layout=layout)
    with open_table_file(path, layout=layout, leaves_out_bad_rows=True, kept_column="s") as file:
        assert [row.ordinal for row in file.bad_rows] == [1, 2]
        assert file.kept_of_bad_rows(pa.string()).to_pylist() == ["b", None]
        assert pa.Table.from_batches(file)["n"].to_pylist() == [1, 4]
    known = schema(n=pa.float64())
    assert table_of(path, known, layout=layout, leaves_out_bad_rows=True)["n"].to_pylist() == [1, 4]


@pytest.mark.parametrize(
    "pattern",
    [
        r"\S+", "%{NOPE:x}", "%{NUMBR:x}", "(?P<x>a)(?=b)", "(?P<x>a", "%{INT:x}%{INT:x}", "%{INT:x:date}",
        r"(?P<x>(a{1000}){1000})",
    ],
)  # fmt: skip
def test_a_pattern_that_is_no_use_is_refused_with_the_cause(pattern: str) -> None:
    with pytest.raises(ValueError) as caught:
        line_pattern(pattern, spans_lines=False)
    says(str(caught.value))


def test_no_pattern_takes_more_than_linear_time(tmp_path: Path) -> None:
    """A backtracking matcher would not end."""
    path = put(tmp_path, "a.log", "a" * 100_000 + "!\n")
    refusal(path, layout=lines("(?P<x>(a+)+)+"))


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    refusal(put(tmp_path, "a.log", b"ok\n" + b"a" * (6 << 20)), layout=lines("(?P<x>.*)"))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["+a", "+", "b", "", "é", "\r"]), max_size=30),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(1, 40),
)
def test_records_are_the_same_however_the_file_is_read(
    parts: list[str], end: str, read_bytes: int
) -> None:
    data = end.join(parts).encode()
    found = _cut(data, read_bytes, r"\+"), _cut(data, read_bytes, None)
    assert found == (_cut(data, 1 << 20, r"\+"), _cut(data, 1 << 20, None))
    texts = [text for _, _, text in found[1]]
    assert texts == [line for part in data.decode().split("\n") if (line := part.rstrip("\r"))]


def _cut(data: bytes, read_bytes: int, starts_with: str | None) -> list[tuple[int, int, str]]:
    class Source:
        at = 0

        def read(self, _size: int, /) -> bytes:
            self.at += read_bytes
            return data[self.at - read_bytes : self.at]

    return [
        row
        for block in records.cut_records("x", Source(), starts_with)
        for row in zip(
            block.ordinals.tolist(), block.lines.tolist(), block.texts.to_pylist(), strict=True
        )
    ]
