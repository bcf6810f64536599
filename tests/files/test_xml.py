"""XML: rows by a path, shapes of elements, what our writer writes, and hostile files."""

from __future__ import annotations

import tracemalloc
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.files import xml_elements
from compactor.files.layouts import XmlLayout
from compactor.files.read import open_table_file
from compactor.files.write import open_table_sink
from tests.files.reading import put, refusal, schema, table_of
from tests.support.wording import says

ORDERS = """<?xml version="1.0" encoding="ISO-8859-1"?>
<!-- by hand -->
<orders xmlns="urn:x" xmlns:p="urn:y">
  <order no="1" at="2024-01-31">
    <p:who>M\u00fcller &amp; Co</p:who>
    <item sku="a"><price currency="EUR">9.99</price><tag>t</tag></item>
    <item sku="b"><price>1</price><tag>t</tag><tag>u</tag></item>
  </order>
  <order no="2" at="2024-02-01"/>
</orders>
""".encode("latin-1")


def test_each_element_within_the_outermost_is_a_row_unless_a_path_names_another(
    tmp_path: Path,
) -> None:
    path = put(tmp_path, "orders.xml", ORDERS)
    first, second = table_of(path).to_pylist()
    assert (first["no"], str(first["at"]), first["p:who"]) == (1, "2024-01-31", "M\u00fcller & Co")
    assert [item["tag"] for item in first["item"]] == [["t"], ["t", "u"]]
    assert second == {**dict.fromkeys(first), "no": 2, "at": second["at"]}
    rows = table_of(path, layout=XmlLayout(("order", "item"))).to_pylist()
    assert rows[0] == {"sku": "a", "price": {"currency": "EUR", "#text": 9.99}, "tag": ["t"]}
    assert rows[1] == {"sku": "b", "price": {"currency": None, "#text": 1.0}, "tag": ["t", "u"]}
    values = table_of(path, layout=XmlLayout(("tag",)))
    assert values.to_pylist() == [{"#text": "t"}, {"#text": "t"}, {"#text": "u"}]


def test_late_rows_change_the_shape_of_early_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xml_elements, "_READ_BYTES", 64)
    rows = ["<r><n>1</n><a>x</a></r>"] * 40 + ["<r><n>1.5</n><a>x</a><a>y</a><b><c>1</c></b></r>"]
    table = table_of(put(tmp_path, "a.xml", f"<rows>{''.join(rows)}</rows>"))
    assert table.schema == schema(
        n=pa.float64(), a=pa.list_(pa.string()), b=pa.struct({"c": pa.int64()})
    )
    assert table.to_pylist()[0] == {"n": 1.0, "a": ["x"], "b": None}
    assert table.to_pylist()[40] == {"n": 1.5, "a": ["x", "y"], "b": {"c": 1}}


def test_rows_beyond_those_held_are_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xml_elements, "_READ_BYTES", 100)
    rows = "".join(f"<r><n>{n}</n></r>\n" for n in range(1000))
    table = table_of(put(tmp_path, "a.xml", f"<rows>{rows}</rows>"), batch_bytes=64)
    assert table["n"].to_pylist() == list(range(1000))


CHARACTERS = st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])
WORDS = st.text(CHARACTERS, max_size=8).map(lambda text: f"t{text}")
"""Texts that are no numbers, and not blank."""


def maybe(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(st.none(), values)


ROWS = st.fixed_dictionaries(
    {
        "n": maybe(st.integers(-(2**63), 2**63 - 1)),
        "a name": maybe(WORDS),
        "s": maybe(st.fixed_dictionaries({"x": maybe(st.booleans()), "y": WORDS})),
        "list": maybe(st.lists(maybe(st.floats(allow_nan=False)), max_size=4)),
        "deep": maybe(st.lists(st.fixed_dictionaries({"z": WORDS}), max_size=3)),
    }
)
WRITTEN = schema(
    n=pa.int64(),
    **{"a name": pa.string()},
    s=pa.struct({"x": pa.bool_(), "y": pa.string()}),
    list=pa.list_(pa.float64()),
    deep=pa.list_(pa.struct({"z": pa.string()})),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=20))
def test_what_our_writer_writes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]]
) -> None:
    table = pa.Table.from_pylist(rows, WRITTEN)
    path = str(tmp_path_factory.mktemp("xml") / "a.xml.zst")
    full = pa.Table.from_pylist([FULL], WRITTEN)  # whatever the others lack, it has a type
    with open_table_sink(path, table.schema) as sink:
        for batch in [*full.to_batches(), *table.to_batches(max_chunksize=3)]:
            sink.write(batch)
    assert table_of(path).slice(1).to_pylist() == table.to_pylist()
    assert table_of(path, WRITTEN).slice(1).equals(table)


FULL = {"n": 1, "a name": "t", "s": {"x": True, "y": "t"}, "list": [0.5], "deep": [{"z": "t"}]}


def test_a_table_gives_nested_types_too(tmp_path: Path) -> None:
    row = "<l><item>1</item><item/></l><f><item>1.5</item><item>2</item></f><s><d>1.50</d></s><b>YQ==</b>"
    path = put(tmp_path, "a.xml", f"<rows><row>{row}</row><row><l/></row></rows>")
    known = schema(
        l=pa.large_list(pa.int8()),
        f=pa.list_(pa.float32(), 2),
        s=pa.struct({"d": pa.decimal128(5, 2), "more": pa.date32()}),
        b=pa.binary(),
    )
    first, second = table_of(path, known).to_pylist()
    assert (first["l"], first["f"], first["b"]) == ([1, None], [1.5, 2.0], b"a")
    assert first["s"] == {"d": Decimal("1.50"), "more": None}
    assert second == {"l": [], "f": None, "s": None, "b": None}
    odd = put(tmp_path, "odd.xml", "<rows>\n<row><l><item>0x1</item></l></row></rows>")
    refusal(odd, known)
    refusal(odd, schema(l=pa.map_(pa.string(), pa.string())))


def test_elements_of_another_form_than_the_tables_are_bad_rows(tmp_path: Path) -> None:
    cells = ["<n>1</n>", "<n>x</n>", "<n>3</n><n>3</n>", "<n><m/></n>", "<n> 5 </n>"]
    content = "".join(["<a>", *(f"\n<r>{cell}</r>" for cell in cells), "</a>"])
    path, known = put(tmp_path, "a.xml", content), schema(n=pa.int64())
    refusal(path, known)
    with open_table_file(path, known, leaves_out_bad_rows=True) as file:
        assert [row.ordinal for row in file.bad_rows] == [1, 2, 3]
        for row in file.bad_rows[1:]:
            says(row.reason.replace(str(tmp_path), "<tmp>"))
        assert pa.Table.from_batches(file)["n"].to_pylist() == [1, 5]


@pytest.mark.parametrize(
    "content",
    [
        '<!DOCTYPE a [<!ENTITY x "y">]><a><b>&x;</b></a>',
        '<!DOCTYPE a SYSTEM "file:///etc/passwd"><a><b/></a>',
        "<a><b>&x;</b></a>",
        "<a><b>",
        "<a>\n<b></a>",
        "<a>" * 70,
        '<?xml version="1.0" encoding="klingon"?><a/>',
        "",
        "<a/>",
        "<a><b x='1' x='2'/></a>",
        "<a><b>\0</b></a>",
    ],
)
def test_what_is_hostile_or_not_sound_is_refused_with_its_line(
    tmp_path: Path, content: str
) -> None:
    refusal(put(tmp_path, "a.xml", content))


@pytest.mark.parametrize(
    ("start", "part"),
    [("<a ", "b"), ("<a><!--", "c"), ("<a><r>", "<b/>"), ("<a><r>", "text ")],
)
def test_rows_and_tags_without_bounds_are_refused_in_bounded_memory(
    tmp_path: Path, start: str, part: str
) -> None:
    path = put(tmp_path, "a.xml", start + part * ((40 << 20) // len(part)))
    tracemalloc.start()
    try:
        refusal(path)
        assert tracemalloc.get_traced_memory()[1] < 400 << 20
    finally:
        tracemalloc.stop()


def test_a_path_that_no_element_has_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, "orders.xml", ORDERS)
    refusal(path, layout=XmlLayout(("orders", "item")))
    # Types tell the columns, but not that there are no rows.
    assert "<lines/item>" in refusal(
        path, schema(sku=pa.string()), layout=XmlLayout(("lines", "item"))
    )
    for empty in ("<orders/>", "<all><orders/><more>x</more></all>"):
        file = put(tmp_path, "empty.xml", empty)
        given = schema(sku=pa.string())
        assert table_of(file, given, layout=XmlLayout(("orders", "item"))).num_rows == 0


def test_more_columns_than_text_files_may_have_are_refused(tmp_path: Path) -> None:
    cells = "".join(f"<c{n}/>" for n in range(10_001))
    refusal(put(tmp_path, "a.xml", f"<a><r>{cells}</r></a>"))
