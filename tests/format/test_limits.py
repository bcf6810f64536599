"""What a reader refuses a writer does not write, whatever the limits are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_fragment import limits
from lsm_fragment.arrays.sizes import heaviest_value_bytes
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.blocks.layout import BlockKind, Codec
from lsm_fragment.container.block import Block
from lsm_fragment.container.block_reader import BlockReader
from lsm_fragment.container.chunk import Chunk, make_block, make_chunk
from lsm_fragment.container.emitter import FragmentEmitter
from lsm_fragment.container.header import FragmentHeader
from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.encodings import allowance, coding, fitting, node
from lsm_fragment.encodings import integers as numbers
from lsm_fragment.encodings.allowance import Allowance
from lsm_fragment.errors import CorruptFragmentError, LimitError, SchemaError
from lsm_fragment.limits import MAX_METADATA_BYTES
from tests.format.test_letters import ids
from tests.support.fragments import (
    BytesSource,
    NonSeekableSink,
    read_random,
    read_stream,
    rows_of,
    sort_schema,
    write_fragment,
)
from tests.support.loops import loops
from tests.support.oracle import stable_sorted
from tests.support.samples import SAMPLES, sample_array
from tests.support.strategies import keyed_tables
from tests.support.wording import refuses

Limit = Callable[[int | None], None]


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Limit]:
    """Sets COMPACTOR_MAX_CHUNK_BYTES from here on."""

    def set_to(value: int | None) -> None:
        limits.max_chunk_bytes.cache_clear()
        if value is None:
            monkeypatch.delenv("COMPACTOR_MAX_CHUNK_BYTES", raising=False)
        else:
            monkeypatch.setenv("COMPACTOR_MAX_CHUNK_BYTES", str(value))

    yield set_to
    limits.max_chunk_bytes.cache_clear()


def block_of(chunk: Chunk) -> Block:
    return BlockReader(BytesIO(chunk.block(BlockKind.DATA)), "mem").read_block("v")


def reads_back(array: pa.Array, level: int = 3) -> Chunk:
    chunk = make_chunk(array, level=level)
    dtype = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    decoded = block_of(chunk).decode(dtype, keep_dictionary=True)
    assert decoded.to_pylist() == array.to_pylist()
    return chunk


@pytest.mark.parametrize("most", [1, 100, 10_000])
@loops("name", SAMPLES)
def test_values_of_every_type_are_written_as_they_can_be_read(
    limit: Limit, name: str, most: int
) -> None:
    limit(most)
    column = sample_array(name)
    column = pa.concat_arrays([column] * 40) if not pa.types.is_dictionary(column.type) else column
    table = pa.table({"k": range(len(column)), "v": column})
    try:
        data = write_fragment(table, "k")
    except LimitError:
        # Nulls of the type null, and lists of them, have no encoding in which they take bytes.
        assert "null" in str(column.type)
        return
    assert rows_of(read_random(data)) == rows_of(table)
    assert rows_of(read_stream(data)) == rows_of(table)


@settings(max_examples=60, deadline=None)
@given(keyed_tables(max_tables=1, max_rows=60), st.sampled_from([1, 64, 1000, 1 << 30]))
def test_what_is_written_under_a_limit_is_read_under_it(case, most: int) -> None:
    (table, *_), sort = case
    with pytest.MonkeyPatch.context() as patch:
        limits.max_chunk_bytes.cache_clear()
        patch.setenv("COMPACTOR_MAX_CHUNK_BYTES", str(most))
        try:
            rows = stable_sorted(table, sort)
            try:
                data = write_fragment(rows, sort, WriterOptions(max_rows=50))
            except LimitError:
                assert any(pa.types.is_null(field.type) for field in table.schema)
                return
            assert repr(rows_of(read_random(data))) == repr(rows_of(rows))
            assert repr(rows_of(read_stream(data))) == repr(rows_of(rows))
        finally:
            limits.max_chunk_bytes.cache_clear()


def test_a_value_that_compresses_too_well_is_stored_uncompressed(limit: Limit) -> None:
    limit(100_000)
    at = reads_back(pa.array(["x" * 99_000]))
    above = reads_back(pa.array(["x" * 101_000]))
    assert (at.codec, above.codec) == (Codec.ZSTD, Codec.NONE)
    # What compresses less than 64-fold stays compressed, however large it is.
    text = "".join(f"{n:x}," for n in range(40_000))
    assert len(text) > 100_000
    assert reads_back(pa.array([text])).codec is Codec.ZSTD


@loops("name", SAMPLES)
def test_rows_of_a_dictionary_of_any_type_that_may_be_too_large_are_counted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, rows = to_storage(sample_array(name, 40)), 10
    heaviest = heaviest_value_bytes(values)
    monkeypatch.setattr(allowance, "_UNCHECKED_BYTES", rows * heaviest - 1)
    assert allowance.may_be_large(values, rows) or not heaviest


def test_letters_of_a_frame_that_makes_too_much_are_stored_as_text(limit: Limit) -> None:
    values = pa.array(["prefix " * 100 + value for value in ids(300, length=8)])
    framed = reads_back(values)
    assert (framed.encoding, len(framed.stored) < 3000) == ("LETTERS", True)
    limit(100_000)
    plain = reads_back(values)
    assert (plain.encoding, len(plain.stored) > 3000) == ("VARLEN", True)


def test_constants_of_a_list_get_bytes_where_there_are_too_many(
    limit: Limit, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = pa.array([[7] * 20_000])
    plain = reads_back(many)
    assert plain.raw_bytes < 100
    limit(100_000)
    assert reads_back(many).raw_bytes >= 160_000
    limit(None)
    # Nodes of constants may have so many values together; each of these is below that.
    monkeypatch.setattr(node, "MAX_UNBACKED_VALUES", 25_000)
    for module in (numbers, fitting):
        monkeypatch.setattr(module, "MAX_UNBACKED_VALUES", 25_000)
    monkeypatch.setattr("lsm_fragment.encodings.coding.MAX_UNBACKED_VALUES", 25_000)
    both = pa.array([{"a": [7] * 20_000, "b": [8] * 20_000}])
    assert reads_back(both).raw_bytes >= 320_000


def test_a_dictionary_stands_for_no_more_than_readers_take_that_do_not_keep_it(
    limit: Limit,
) -> None:
    limit(100_000)
    text = "".join(f"{n:x}" for n in range(100))
    few = pa.array([text] * 100).dictionary_encode()
    assert reads_back(few).encoding == "DICTIONARY"
    several = pa.array([text] * 500).dictionary_encode()
    assert 500 * len(text) < 100_000 < 500 * (len(text) + 24)
    block_of(reads_back(several)).decode(pa.string())
    many = pa.array([text] * 1000).dictionary_encode()
    with refuses(LimitError):
        make_chunk(many, level=3)


def test_rare_long_values_are_read_however_many_rows_have_none() -> None:
    """A null's code is 0, as the first value's."""
    text = "".join(f"{n:x}" for n in range(80_000))
    few = [text if row in (7, 8, 9) else None for row in range(65_536)]
    assert len(text) * len(few) > 16 << 30
    table = pa.table({"k": range(len(few)), "v": few})
    data = write_fragment(table, "k")
    for rows in (read_random(data), read_stream(data)):
        assert rows["v"].null_count == len(few) - 3
        assert rows["v"].slice(7, 3).to_pylist() == [text] * 3


def test_structs_of_many_texts_that_repeat_are_read(limit: Limit) -> None:
    """Each field's longest value says nothing of what all rows take together."""
    field = pa.array([["short", "x" * 4000][row == 5] for row in range(3000)])
    fields = [field] * 100
    table = pa.table(
        {
            "k": range(3000),
            "v": pa.StructArray.from_arrays(fields, [f"f{n}" for n in range(len(fields))]),
        }
    )
    limit(100 << 20)
    assert 3000 * 4000 * 100 > 100 << 20 > table.nbytes
    data = write_fragment(table, "k", WriterOptions(target_row_group_bytes=64 << 20))
    assert read_random(data).equals(table)


def test_what_cannot_be_written_is_told_with_its_column_and_rows(limit: Limit) -> None:
    limit(1000)
    nulls = pa.array([[None] * 5, [None] * 100_000], pa.list_(pa.null()))
    table = pa.table({"k": [1, 2], "notes": nulls})
    with refuses(LimitError):
        write_fragment(table, "k", WriterOptions(max_rows=1))
    limit(None)
    assert read_random(write_fragment(table, "k")).equals(table)


def test_a_larger_limit_is_for_reading_only(limit: Limit) -> None:
    """Who may read more does not write what others could not."""
    limit(1 << 40)
    assert limits.max_chunk_bytes() == 1 << 40
    assert limits.max_written_bytes() == 1 << 30
    limit(1 << 20)
    assert limits.max_written_bytes() == 1 << 20


def test_what_was_written_under_a_larger_limit_is_refused_under_a_smaller_one(limit: Limit) -> None:
    table = pa.table({"k": [1], "v": ["x" * 200_000]})
    data = write_fragment(table, "k")
    limit(100_000)
    with refuses(CorruptFragmentError):
        read_random(data)
    limit(200_100)
    assert read_random(data).equals(table)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(SAMPLES)), st.integers(1, 50), st.sampled_from([1, 3, 200]))
def test_what_decoding_takes_is_never_more_than_was_foreseen(
    name: str, times: int, rows: int
) -> None:
    """So chunks below the limit by that estimate need no trial."""
    array = to_storage(sample_array(name))
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    array = pa.concat_arrays([array] * times).slice(0, rows)
    encoded = coding.encode_array(array)
    taken = 0

    def charge(allowance: Allowance, size: int) -> None:
        nonlocal taken
        taken += size

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Allowance, "charge", charge)
        coding.decode_array(encoded.meta, encoded.raw, array.type, len(array))
    assert taken <= fitting._max_needed_bytes(encoded, array, 1 << 30)


def test_a_header_that_compresses_too_well_is_stored_uncompressed() -> None:
    block = make_block(BlockKind.HEADER, b"x" * (MAX_METADATA_BYTES + 1), level=3)
    assert len(block) > MAX_METADATA_BYTES
    assert len(make_block(BlockKind.HEADER, b"x" * MAX_METADATA_BYTES, level=3)) < 100_000
    schema = pa.schema([("k", pa.int64())], metadata={"a": "a" * MAX_METADATA_BYTES})
    table = pa.table({"k": [1]}, schema=schema)
    data = write_fragment(table, "k")
    assert len(data) > MAX_METADATA_BYTES
    assert read_random(data).schema.metadata == schema.metadata


def test_statistics_of_very_many_row_groups_are_read() -> None:
    """A page beyond 16 MiB, all alike but for the places of chunks."""
    names = ["measurement", "name"]
    groups, text = 100_000, "x" * 64
    schema = pa.schema([("k", pa.int64()), *((name, pa.string()) for name in names)])
    sink = NonSeekableSink()
    emitter = FragmentEmitter(
        sink, FragmentHeader(schema=schema, sort=sort_schema("k"), max_rows=1)
    )
    key, chunk = make_chunk(pa.array([1]), level=0), make_chunk(pa.array([text]), level=0)
    block = chunk.block(BlockKind.DATA)
    stats = chunk.stats(offset=0, stored_bytes=len(block))
    for _ in range(groups):
        emitter.key_group([key], (1,), (1,))
    for name in names:
        emitter.begin_column(name)
        for _ in range(groups):
            emitter.copy_block((block,), stats)
    emitter.finish([0] * groups)
    data = sink.getvalue()
    reader = FragmentReader(BytesSource(data), len(data), "mem")
    assert reader.read_storage([names[-1]], [groups - 1])[0][0].to_pylist() == [text]


BAD_TEXT = pa.Array.from_buffers(
    pa.string(), 3,
    [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0\4\0\0\0\6\0\0\0"), pa.py_buffer(b"ab\xff\xfezz")],
)  # fmt: skip
BAD_DECIMAL = pa.Array.from_buffers(
    pa.decimal32(3, 1), 3, [None, pa.py_buffer((123456).to_bytes(4, "little") * 3)]
)


@pytest.mark.parametrize(
    "column",
    [
        BAD_TEXT,
        BAD_TEXT.dictionary_encode(),
        pa.ListArray.from_arrays([0, 1, 2, 3], BAD_TEXT),
        pa.StructArray.from_arrays([BAD_TEXT], ["f"]),
        BAD_DECIMAL,
        pa.DictionaryArray.from_arrays(
            pa.array([0, 1, 7], pa.int32()), pa.array(["a", "b"]), safe=False
        ),
    ],
    ids=["text", "dictionary", "list", "struct", "decimal", "codes"],
)
def test_values_that_readers_refuse_are_refused_when_written(column: pa.Array) -> None:
    with refuses(SchemaError):
        write_fragment(pa.table({"k": range(3), "v": column}), "k")
