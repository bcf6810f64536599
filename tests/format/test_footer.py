"""Footers: what they say, how little of them is read, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.container.stream_reader import FragmentStream
from lsm_fragment.container.tables import padded
from lsm_fragment.container.writer import FragmentWriter, WriterOptions
from lsm_fragment.errors import CorruptFragmentError, UnsupportedVersionError
from tests.fuzz.anatomy import Anatomy, RawBlock
from tests.support.fragments import (
    BytesSource,
    NonSeekableSink,
    NonSeekableSource,
    read_random,
    read_stream,
    sort_schema,
    write_fragment,
)
from tests.support.wording import refuses

Edit = Callable[[dict[str, Any]], object]


def small_fragment() -> bytes:
    table = pa.table({"k": range(10), "n": pa.nulls(10), "v": [f"v{n}" for n in range(10)]})
    return write_fragment(table, "k", WriterOptions(max_rows=4))


def wide_fragment(columns: int = 3000) -> bytes:
    table = pa.table({f"c{n:05}": [n, n + 1] for n in range(columns)})
    return write_fragment(table, "c00000", WriterOptions(max_rows=1))


def reader_of(data: bytes) -> tuple[FragmentReader, BytesSource]:
    source = BytesSource(data)
    return FragmentReader(source, len(data), "mem"), source


def test_a_small_fragment_is_opened_by_one_request() -> None:
    data = small_fragment()
    reader, source = reader_of(data)
    assert [len(reader.footer.chunks(name)) for name in ("k", "n", "v")] == [3, 0, 3]
    assert reader.footer.field("n") == pa.field("n", pa.null())
    assert reader.footer.field("absent") is None
    assert source.requests == [(0, len(data))]


def test_of_a_wide_fragment_only_the_pages_of_the_wanted_columns_are_read() -> None:
    data = wide_fragment()
    reader, source = reader_of(data)
    opened = len(source.requests)
    names = ["c00001", "c01500", "c02999"]
    reader.footer.fetch(names)
    assert [reader.footer.chunks(name)[1].max for name in names] == [2, 1501, 3000]
    assert len(source.requests) - opened <= 3
    assert sum(length for _, length in source.requests) < len(data) // 4
    reader.footer.fetch(names)
    assert len(source.requests) - opened <= 3


def test_every_column_of_a_wide_fragment_is_found_and_no_other() -> None:
    data = wide_fragment(700)
    reader, _ = reader_of(data)
    for number in range(700):
        assert reader.footer.chunks(f"c{number:05}")[0].min == number
    assert [reader.footer.field(name) for name in ("", "c", "c00000x", "c00699x", "d")] == [
        None
    ] * 5
    assert list(reader.footer.columns) == reader.schema.names


def test_a_stream_says_of_columns_what_the_footer_says() -> None:
    data = wide_fragment(700)
    stream = FragmentStream(NonSeekableSource(data), "mem")
    while stream.next_key_group() is not None:
        pass
    while stream.next_column() is not None:
        for _ in stream.row_group_rows:
            stream.next_chunk()
    found: dict[str, list[Any]] = {}
    directory = stream.finish(lambda name, chunks: found.update({name: list(chunks)}))
    reader, _ = reader_of(data)
    assert found == dict(reader.footer.columns)
    assert directory.row_groups == reader.footer.row_groups


def edited(edit: Edit) -> bytes:
    anatomy = Anatomy.of(small_fragment())
    anatomy.is_linked = False
    anatomy.edit_footer.append(edit)
    return anatomy.to_bytes()


FALSE_FOOTERS: dict[str, Edit] = {
    "other rows": lambda footer: footer.update(rows=11),
    "another row hash": lambda footer: footer.update(row_hash="0" * 16),
    "another row hash function": lambda footer: footer.update(row_hash_function=2),
    "another sort schema": lambda footer: footer["sort"][0].update(order="desc"),
    "no sort schema": lambda footer: footer.update(sort=[]),
    "fewer columns": lambda footer: footer.update(schema_columns=2),
    "row groups that are too large": lambda footer: footer.update(max_rows=3),
    "an empty row group": lambda footer: footer["row_groups"].update(rows=[8, 2, 0]),
    "a column that is not there": lambda footer: footer["columns"][1].update(name="m"),
    "columns out of order": lambda footer: footer["columns"].insert(1, footer["columns"].pop()),
    "another type": lambda footer: footer["columns"][2].update(
        field={"type": {"kind": "binary"}, "nullable": True}
    ),
    "a type that is none": lambda footer: footer["columns"][2].update(field={"type": 7}),
    "a chunk elsewhere": lambda footer: footer["columns"][2]["offset"].__setitem__(1, 60),
    "a column elsewhere": lambda footer: footer["columns"][2].update(start=56),
    "an unknown encoding": lambda footer: footer["columns"][2]["encoding"].__setitem__(1, 99),
    "a bound of another kind": lambda footer: footer["columns"][2]["min"].update(kind=6),
    "a bound that goes on": lambda footer: footer["row_groups"]["first_key"][0][
        "states"
    ].__setitem__(0, 3),
    "text that is not UTF-8": lambda footer: footer["columns"][2]["min"]["values"].__setitem__(
        0, "\xff\xfe"
    ),
    "another first name in the page table": lambda footer: footer["pages"][0].update(name="m"),
    "a page elsewhere": lambda footer: footer["pages"][0].update(offset=16),
    "a column that is left out": lambda footer: footer["columns"][2].update(
        start=0, end=0, offset=[]
    ),
    "a column that it does not have": lambda footer: (
        footer["columns"].pop(1),
        footer["pages"][0].update(name="v"),
    ),
    "another end of the columns": lambda footer: footer.update(columns_end=1000),
    "a page of columns elsewhere": lambda footer: footer["pages"][0].update(start=2**40),
}


@pytest.mark.parametrize("edit", FALSE_FOOTERS.values(), ids=FALSE_FOOTERS.keys())
def test_a_footer_that_is_not_true_is_refused_by_both_readers(edit: Edit) -> None:
    data = edited(edit)
    assert data != small_fragment()
    for read in (read_random, read_stream):
        with refuses(CorruptFragmentError):
            read(data)


def test_a_column_without_chunks_says_nothing_else() -> None:
    anatomy = Anatomy.of(small_fragment())
    anatomy.is_linked = False
    [at] = [at for at, block in enumerate(anatomy.blocks) if block.kind == ord("S")]
    page = anatomy.blocks[at].raw()
    size = int.from_bytes(page[:8], "little")
    longer = (size + 8).to_bytes(8, "little") + page[8:size] + bytes(8) + page[size:]
    anatomy.blocks[at] = anatomy.blocks[at].with_raw(longer)
    data = anatomy.to_bytes()
    for read in (read_random, read_stream):
        with refuses(CorruptFragmentError):
            read(data)


def test_a_page_has_records() -> None:
    anatomy = Anatomy.of(small_fragment())
    anatomy.is_linked = False
    [at] = [at for at, block in enumerate(anatomy.blocks) if block.kind == ord("S")]
    anatomy.blocks[at] = anatomy.blocks[at].with_raw(b"")
    data = anatomy.to_bytes()
    for read in (read_random, read_stream):
        with refuses(CorruptFragmentError):
            read(data)


def test_a_required_feature_that_is_not_known_is_refused_by_its_name() -> None:
    anatomy = Anatomy.of(small_fragment())
    header = anatomy.blocks[0].raw()
    feature = header.replace(b'"required_features":[]', b'"required_features":["folded"]')
    anatomy.blocks[0] = anatomy.blocks[0].with_raw(feature)
    with refuses(UnsupportedVersionError, "'folded'"):
        read_stream(anatomy.to_bytes())
    data = edited(lambda footer: footer.update(required_features=["folded"]))
    with refuses(UnsupportedVersionError, "'folded'"):
        read_random(data)


def ancillary(kind: bytes = b"z") -> RawBlock:
    """A block of a kind and codec that no reader knows."""
    return RawBlock(
        kind=kind[0],
        codec=200,
        rows=5,
        meta=b"meta",
        stored=b"for later readers",
        raw_bytes=1 << 40,
    )


def test_blocks_that_may_be_skipped_are_skipped_where_they_may_be() -> None:
    before = Anatomy.of(small_fragment())
    expected = read_random(before.to_bytes())
    kinds = "".join(chr(block.kind) for block in before.blocks)
    places = [kinds.index("K"), kinds.index("S")]
    for at in range(len(kinds) + 1):
        anatomy = Anatomy.of(small_fragment())
        anatomy.blocks[at:at] = [ancillary(), ancillary(b"a")]
        data = anatomy.to_bytes()
        if at in places:
            assert read_random(data) == expected
            assert read_stream(data) == expected
        else:
            with refuses(CorruptFragmentError):
                read_stream(data)


def test_a_block_of_an_unknown_kind_that_may_not_be_skipped_is_refused() -> None:
    anatomy = Anatomy.of(small_fragment())
    anatomy.blocks.insert(1, ancillary(b"Z"))
    with refuses(CorruptFragmentError):
        read_stream(anatomy.to_bytes())


def test_a_damaged_block_that_would_be_skipped_is_refused() -> None:
    anatomy = Anatomy.of(small_fragment())
    anatomy.blocks.insert(1, ancillary())
    data = bytearray(anatomy.to_bytes())
    data[data.index(b"for later")] ^= 1
    with refuses(CorruptFragmentError):
        read_stream(bytes(data))


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


def test_large_json_of_a_directory_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    anatomy = Anatomy.of(small_fragment())
    anatomy.is_linked = False
    directory = anatomy.blocks[-1].raw()
    size = int.from_bytes(directory[32:40], "little")
    text = directory[48 : 48 + size]
    large = text[:-1] + b',"later":"' + b"x" * (1 << 20) + b'"}'
    rest = directory[48 + size + -size % 8 :]
    head = directory[:32] + len(large).to_bytes(8, "little") + directory[40:48]
    anatomy.blocks[-1] = anatomy.blocks[-1].with_raw(head + padded(large) + rest)
    parsed = []

    def loads(data: bytes) -> Any:
        parsed.append(len(data))
        return json.loads(data)

    monkeypatch.setattr("lsm_fragment.container.directory.json", SimpleNamespace(loads=loads))
    for _ in range(3):
        assert reader_of(anatomy.to_bytes())[0].footer.rows == 10
    assert parsed == [len(large)] * 3


def test_statistics_of_the_columns_asked_for_last_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lsm_fragment.container.footer_reader._KEPT_CHUNKS", 300)
    reader, source = reader_of(wide_fragment(700))
    footer, kept = reader.footer, reader.footer._kept
    every = footer.columns
    assert [chunks[0].min for chunks in every.values()] == list(range(700))
    assert sum(len(column.chunks) for column in kept.columns.values() if column) <= 300
    # What is asked for at once is kept whole, however much it is.
    names = [f"c{number:05}" for number in range(600)]
    footer.fetch(names)
    asked = len(source.requests)
    assert [footer.chunks(name)[1].max for name in names] == list(range(1, 601))
    assert len(source.requests) == asked
    for number in range(100, 700):
        assert footer.chunks(f"c{number:05}")[0].min == number
        assert footer.field(f"no column {number}") is None
    assert len(kept.columns) <= 300
