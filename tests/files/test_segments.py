"""EDIFACT, X12 and HL7 v2: delimiters of the header, elements, release characters, and the bytes back.

The samples are made by hand after the shapes that the standards publish.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.errors import InputError
from compactor.files import segments
from compactor.files.read import open_table_file
from compactor.files.segment_rows import SEGMENT_SCHEMA
from compactor.files.write import open_table_sink
from tests.files.reading import put, refusal, table_of
from tests.support.wording import refuses, says

SAMPLES = Path(__file__).parent / "samples"
ISA = (
    "ISA*00*          *00*          *ZZ*SENDER         *ZZ*RECEIVER       *240131*2359*^*00501*"
    "000000077*0*P*>~"
)
HEADERS = {
    "a.edifact": {"tag": "UNB", "elements": [["UNOY", "4"], ["A"], ["B"], ["240131", "2359"], ["7"]]},
    "a.x12": {"tag": "ISA", "elements": [[text] for text in ISA[4:-1].split("*")]},
    "a.hl7": {"tag": "MSH", "elements": [["|"], ["^~\\&"], ["LAB"]]},
}  # fmt: skip


AGAIN = [{"element": 1, "components": ["a"]}]


def write(path: Path, rows: list[dict[str, object]]) -> str:
    table = pa.Table.from_pylist(rows, SEGMENT_SCHEMA)
    with open_table_sink(str(path), table.schema) as sink:
        for batch in table.to_batches(max_chunksize=2):
            sink.write(batch)
    return str(path)


@pytest.mark.parametrize("name", ["order.edifact", "claim.x12", "admission.hl7"])
@pytest.mark.parametrize("read_bytes", [7, 200, 1 << 20])
def test_what_was_read_is_written_with_the_same_bytes(
    name: str, read_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_READ_BYTES", read_bytes)
    table = table_of(str(SAMPLES / name))
    assert table.schema == SEGMENT_SCHEMA
    assert table["segment"].to_pylist() == list(range(1, table.num_rows + 1))
    written = write(tmp_path / name, table.to_pylist())
    assert Path(written).read_bytes() == (SAMPLES / name).read_bytes()


def test_edifact_is_divided_by_the_characters_of_una(tmp_path: Path) -> None:
    rows = table_of(str(SAMPLES / "order.edifact")).to_pylist()
    assert [row["tag"] for row in rows[:5]] == ["UNA", "UNB", "UNH", "BGM", "DTM"]
    assert [row["message"] for row in rows] == [None, None, *[1] * 8, *[2] * 3, None]
    text = "Deliver before 8: gate 5 + 6, who? Ask O'Neill"
    assert rows[5]["elements"] == [["AAI"], [], [], [text, "M\u00fcller"]]
    other = "UNA|*,\\ ~UNB*UNOA|1*A*B*240131|1*7~\r\nUNH*1*X~\nFTX*a\\*b\\\\*~UNT*3*1~ UNZ*1*7~\n"
    rows = table_of(put(tmp_path, "other.edi", other)).to_pylist()
    assert rows[3]["elements"] == [["a*b\\"], []]


def test_x12_is_divided_by_the_characters_of_isa(tmp_path: Path) -> None:
    rows = table_of(str(SAMPLES / "claim.x12")).to_pylist()
    assert rows[0]["elements"][15] == [">"] and rows[0]["elements"][1] == [" " * 10]
    assert [row["message"] for row in rows] == [None, None, 1, 1, 1, 1, 1, None, None]
    assert rows[5]["elements"] == [["ABK", "J20"]]
    assert rows[5]["repeats"] == [{"element": 1, "components": ["ABF", "R05"]}]
    lines = (ISA[:-1] + "\nST*997*1\nSE*2*1\nIEA*1*77\n").replace("*", "|")
    rows = table_of(put(tmp_path, "lines.x12", lines * 2)).to_pylist()
    assert [row["message"] for row in rows] == [None, 1, 1, None, None, 2, 2, None]


def test_hl7_is_divided_by_the_characters_of_msh(tmp_path: Path) -> None:
    rows = table_of(str(SAMPLES / "admission.hl7")).to_pylist()
    assert [(row["message"], row["tag"]) for row in rows] == [
        (1, "MSH"), (1, "PID"), (1, "OBX"), (2, "MSH"), (2, "PV1"),
    ]  # fmt: skip
    assert rows[0]["elements"][:3] == [["|"], ["^~\\&"], ["ADT1"]]  # numbered as MSH-1, MSH-2, ...
    assert rows[1]["elements"][4][:2] == ["M\u00f8ller", "Eve"]
    assert [again["element"] for again in rows[1]["repeats"]] == [3, 5]
    assert rows[2]["elements"][4] == ["5 \\T\\ 6 ^ 7, see | or \\.br\\ C:\\E\\x"]
    framed = (
        b"\x0bMSH|^~\\&|A" + b"|" * 15 + b"8859/1\rZZZ|\xe9\r\x1c\r\x0bMSH|^~\\&\r\nZZZ|\xc3\xa9"
    )
    rows = table_of(put(tmp_path, "wire.hl7", framed)).to_pylist()
    assert [row["elements"] for row in rows if row["tag"] == "ZZZ"] == [[["\u00e9"]]] * 2


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.edi", b"hello"),
        ("a.edi", b"UNB+UNOA:1+A'BGM+1"),
        ("a.edi", b"UNA:+.?"),
        ("a.edi", b"UNA:+.:: 'UNB+UNOA:1'"),
        ("a.edi", b"UNA:+.? 'UNB+UNOA:1'X+1'"),
        ("a.edi", b"UNB+UNOA:1'FTX+\xff'"),
        ("a.edi", b"UNB*UNOA~"),
        ("a.edi", b"UNB+UNOA:1'FTX+" + b"a" * (3 << 20)),
        ("a.x12", b"ISA*00*short~"),
        ("a.x12", ISA.replace("*0*P*>~", "*0*P*>A").encode()),
        ("a.x12", ISA.encode() + b"ST*837~SE"),
        ("a.hl7", b"MSH\r"),
        ("a.hl7", b"MSH|||\r"),
        ("a.hl7", b"MSH|^~\\&\r|x\r"),
    ],
)
def test_what_is_not_sound_is_refused_by_its_segment_and_byte(
    name: str, content: bytes, tmp_path: Path
) -> None:
    assert "segment " in refusal(put(tmp_path, name, content))


def test_an_empty_file_has_no_segments(tmp_path: Path) -> None:
    assert table_of(put(tmp_path, "a.edi", b"\r\n")).num_rows == 0


def test_segments_without_a_tag_or_a_text_are_bad_rows(tmp_path: Path) -> None:
    path = put(tmp_path, "a.edi", b"UNB+UNOA:1'?+'BGM+1'FTX+\xff'UNZ+1'")
    with open_table_file(path, leaves_out_bad_rows=True) as file:
        assert [row.ordinal for row in file.bad_rows] == [1, 3]
        for row in file.bad_rows:
            says(row.reason.replace(str(tmp_path), "<tmp>"))
        assert pa.Table.from_batches(file)["tag"].to_pylist() == ["UNB", "BGM", "UNZ"]


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("a.x12", [{"tag": "ST", "elements": []}]),
        ("a.x12", [HEADERS["a.x12"], {"tag": "NTE", "elements": [["a*b"]]}]),
        ("a.x12", [HEADERS["a.x12"], {"tag": "NTE", "elements": [["a~b"]]}]),
        ("a.x12", [{"tag": "ISA", "elements": [["0"]]}]),
        ("a.edi", [{"tag": "BGM", "elements": [["1"]]}]),
        ("a.edi", [HEADERS["a.edifact"], {"tag": "", "elements": [["1"]]}]),
        ("a.edi", [HEADERS["a.edifact"], {"tag": "FTX", "elements": [], "repeats": AGAIN}]),
        ("a.edi", [{"tag": "UNB", "elements": [["UNOC"]]}, {"tag": "FTX", "elements": [["\u0141"]]}]),
        ("a.edi", [{"tag": "UNA", "elements": [[":+"]]}]),
        ("a.edi", [{"tag": "UNA", "elements": [[":+.? '+"]]}]),
        ("a.x12", [{"tag": "ISA", "elements": [*HEADERS["a.x12"]["elements"][:-1], [">!"]]}]),
        ("a.hl7", [{"tag": "MSH", "elements": []}]),
        ("a.hl7", [{"tag": "MSH", "elements": [["|"], ["^~|"]]}]),
        ("a.hl7", [HEADERS["a.hl7"], {"tag": "NTE", "elements": [["a\x1c"]]}]),
        ("a.hl7", [HEADERS["a.hl7"], {"tag": "NTE", "elements": [["a\nb"]]}]),
        ("a.hl7", [HEADERS["a.hl7"], {"tag": "NTE", "elements": [["C:\\F\\x"]]}]),
    ],
)  # fmt: skip
def test_what_would_not_be_read_back_is_refused_by_its_row(
    name: str, rows: list[dict[str, object]], tmp_path: Path
) -> None:
    with refuses(InputError, f"row {len(rows)}"):
        write(tmp_path / name, rows)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"tag": ["UNB"]}),
        pa.table({"tag": ["UNB"], "elements": [["UNOA"]]}),
        pa.table({"tag": ["UNB"], "elements": [[["UNOA"]]], "more": [1]}),
    ],
)
def test_columns_that_are_not_those_of_segments_are_refused(
    table: pa.Table, tmp_path: Path
) -> None:
    with refuses(InputError), open_table_sink(str(tmp_path / "a.edi"), table.schema):
        pass


TEXTS = st.text("aZ9é '+:?*^~|&.", min_size=1, max_size=6)
COMPONENTS = st.lists(st.one_of(st.just(""), TEXTS), max_size=3).filter(lambda found: found != [""])


@pytest.mark.parametrize("name", HEADERS)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_rows_are_read_back_as_they_were_written(
    name: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    texts = COMPONENTS
    if name == "a.x12":  # nothing can be released there
        texts = COMPONENTS.filter(lambda found: not set("*~^>") & set("".join(found)))
    rows: list[dict[str, object]] = [dict(HEADERS[name])]
    for elements in data.draw(st.lists(st.lists(texts, max_size=4), max_size=6)):
        more = data.draw(st.lists(texts, max_size=2)) if elements else []
        repeats = [{"element": 1, "components": again} for again in more]
        rows.append({"tag": "FTX", "elements": elements, "repeats": repeats or None})
    path = write(tmp_path_factory.mktemp("segments") / name, rows)
    found = table_of(path).select(["tag", "elements", "repeats"]).to_pylist()
    assert found == [{"repeats": None, **row} for row in rows]
