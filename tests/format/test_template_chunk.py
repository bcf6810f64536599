"""Chunks of templates, read as far as a query needs them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_fragment.arrays.dividing import split
from lsm_fragment.blocks.compression import Part, compress, decompress_parts
from lsm_fragment.blocks.layout import BLOCK_HEADER_BYTES, BlockKind, Codec, checksum64
from lsm_fragment.blocks.parts import checked_parts, payload_checksum
from lsm_fragment.container import template_chunk
from lsm_fragment.container.block import Block
from lsm_fragment.container.block_reader import BlockReader, MemorySource
from lsm_fragment.container.chunk import make_chunk
from lsm_fragment.container.template_chunk import (
    TemplateChunk,
    TemplateSizes,
    has_templates,
    read_sizes,
)
from lsm_fragment.encodings.coding import encode_array
from lsm_fragment.encodings.node import NODE_BYTES
from lsm_fragment.encodings.template_decoder import template_counts
from lsm_fragment.errors import CorruptFragmentError, LimitError, UnsupportedVersionError
from tests.format.test_templates import block_of, logs, template_of

ROWS = 700


def templated_block(level: int = 1, dtype: pa.DataType | None = None) -> Block:
    block = block_of(make_chunk(logs(ROWS).cast(dtype or pa.string()), level=level))
    assert has_templates(block)
    return block


def test_other_chunks_have_no_templates() -> None:
    assert not has_templates(block_of(make_chunk(pa.array(["a b"] * 100), level=1)))
    assert not has_templates(block_of(make_chunk(pa.array(range(100)), level=1)))


def test_strings_that_are_one_variable_each_stay_text_unless_templates_spare_many_bytes() -> None:
    generator = np.random.default_rng(1)
    words = generator.integers(0, 1 << 63, (200_000, 2), dtype=np.int64)
    ids = [f"{high:016x}{low:016x}" for high, low in sorted(words.tolist())]
    numbers = [f"customer {high % 10**9}" for high, _ in words.tolist()]
    assert not has_templates(block_of(make_chunk(pa.array(ids), level=1)))
    assert has_templates(block_of(make_chunk(pa.array(numbers), level=1)))


@pytest.mark.parametrize("level", [0, 1])
def test_the_head_says_each_rows_template(level: int) -> None:
    block = templated_block(level)
    head = TemplateChunk(block, pa.string()).head
    templates = head.templates.to_pylist()
    found = [None if code is None else templates[code] for code in head.codes.to_pylist()]
    texts = logs(ROWS).to_pylist()
    assert found == [None if text is None else template_of(text) for text in texts]


def test_the_head_is_read_without_the_variables() -> None:
    block = templated_block()
    assert block.header.codec is Codec.ZSTD_PARTS
    damaged = block._replace(stored=block.stored[:-20] + bytes(20))
    chunk = TemplateChunk(damaged, pa.string())
    assert chunk.codes.equals(TemplateChunk(block, pa.string()).codes)
    with pytest.raises(CorruptFragmentError):
        chunk.texts()


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([pa.string(), pa.large_string()]),
    st.sampled_from([0, 1]),
    st.lists(st.integers(0, ROWS - 1), max_size=ROWS),
)
def test_chosen_rows_are_those_of_the_text(dtype: pa.DataType, level: int, rows: list[int]) -> None:
    chosen = np.zeros(ROWS, dtype=np.bool_)
    chosen[rows] = True
    found = TemplateChunk(templated_block(level, dtype), dtype).texts(chosen)
    found.validate(full=True)
    assert found.equals(logs(ROWS).cast(dtype).filter(pa.array(chosen)))
    assert (
        TemplateChunk(templated_block(level, dtype), dtype).texts().equals(logs(ROWS).cast(dtype))
    )


@pytest.mark.parametrize("level", [0, 1])
def test_strings_are_given_again_without_decompressing_variables_again(
    level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunk = TemplateChunk(templated_block(level), pa.string())
    loads: list[bool] = []

    def counted(*args: Any) -> bytes | memoryview:
        loads.append(True)
        return decompress_parts(*args)

    monkeypatch.setattr(template_chunk, "decompress_parts", counted)
    _ = chunk.head
    assert not loads
    chosen = np.arange(ROWS) % 3 == 0
    for _ in range(50):  # far more strings together than a reader may hold of this chunk
        assert chunk.texts(chosen).equals(logs(ROWS).filter(pa.array(chosen)))
        assert chunk.texts().equals(logs(ROWS))
    assert len(loads) == (level > 0)


def test_strings_given_before_do_not_count_against_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    block = templated_block()
    size = logs(ROWS).nbytes
    for module in ("block", "template_chunk"):
        monkeypatch.setattr(
            f"lsm_fragment.container.{module}.chunk_limit_bytes", lambda _stored: 10 * size
        )
    chunk = TemplateChunk(block, pa.string())
    for _ in range(20):
        assert chunk.texts().equals(logs(ROWS))


@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string()])
def test_what_is_written_within_a_limit_is_read_within_it_whichever_rows_come_first(
    dtype: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = pa.array([f"user ü{n} took {n * 7919} ms" for n in range(ROWS)], dtype)
    divided = split(array, 1)
    written = 0
    for limit in range(0, encode_array(divided).decoded_bytes + 1000, 500):
        monkeypatch.setattr(
            "lsm_fragment.encodings.fitting.written_limit_bytes", lambda _stored, limit=limit: limit
        )
        for name in ("block", "template_chunk"):
            most = f"lsm_fragment.container.{name}.chunk_limit_bytes"
            monkeypatch.setattr(most, lambda _stored, limit=limit: limit)
        try:
            block = block_of(make_chunk(divided, level=1))
        except LimitError:
            continue
        if has_templates(block):
            written += 1
            chunk = TemplateChunk(block, dtype)
            assert chunk.texts(np.arange(ROWS) % 8 > 0).equals(
                array.filter(pa.array(np.arange(ROWS) % 8 > 0))
            )
            assert chunk.texts().equals(array)
    assert written


def test_a_first_part_that_ends_elsewhere_than_the_head_is_refused() -> None:
    block = templated_block()
    raw = block.raw()
    head_bytes = TemplateChunk(block, pa.string()).head_bytes
    for cut in (head_bytes + 8, len(raw)):
        codec, payload = compress([Part(memoryview(part)) for part in (raw[:cut], raw[cut:])], 1)
        assert codec is Codec.ZSTD_PARTS
        checksum = payload_checksum(codec, payload)
        header = block.header._replace(stored_bytes=len(payload), payload_checksum=checksum)
        with pytest.raises(CorruptFragmentError, match="first part"):
            _ = TemplateChunk(block._replace(stored=payload, header=header), pa.string()).head


@pytest.mark.parametrize("number", [0, 1, 8, 9, 2**40, 2**64 - 1])
@pytest.mark.parametrize("place", [0, 8, 24])
@pytest.mark.parametrize("is_signed", [False, True])
def test_parts_of_other_lengths_or_another_number_are_refused(
    place: int, number: int, is_signed: bool
) -> None:
    block = templated_block()
    changed = bytearray(block.stored)
    changed[place : place + 8] = number.to_bytes(8, "little")
    forged = block._replace(stored=bytes(changed))
    if is_signed:
        checksum = checksum64(bytes(changed[: 8 + 16 * changed[0]]))
        forged = forged._replace(header=block.header._replace(payload_checksum=checksum))
    for read in (
        lambda: TemplateChunk(forged, pa.string()).head,
        lambda: TemplateChunk(forged, pa.string()).texts(),
        lambda: forged.decode(pa.string()),
    ):
        with pytest.raises(CorruptFragmentError):
            read()


def test_each_part_is_checked_when_it_is_read_and_all_are_checked_of_whole_chunks() -> None:
    made = make_chunk(logs(ROWS), level=1)
    data = made.block(BlockKind.DATA)
    payload_at = len(data) - len(made.stored)
    block = block_of(made)
    first, *_ = checked_parts(block.header, block.stored)
    for place in range(0, len(made.stored), 7):
        changed = bytearray(data)
        changed[payload_at + place] ^= 4
        stored = bytes(changed[payload_at:])
        chunk = TemplateChunk(block._replace(stored=stored), pa.string())
        if place >= first.stop:
            assert len(chunk.codes) == ROWS
        with pytest.raises(CorruptFragmentError):
            chunk.texts()
        if place < first.stop:
            with pytest.raises(CorruptFragmentError):
                _ = TemplateChunk(block._replace(stored=stored), pa.string()).head
        with pytest.raises(CorruptFragmentError):
            BlockReader(MemorySource(bytes(changed)), "mem").read_block("v")


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("begin_bytes", [200, 2_000, 1 << 20])
def test_what_is_not_at_hand_is_read_when_it_is_needed(level: int, begin_bytes: int) -> None:
    whole = templated_block(level)
    parts = checked_parts(whole.header, whole.stored)
    asked: list[tuple[int, int]] = []

    def read_more(start: int, length: int) -> bytes:
        asked.append((start, start + length))
        return whole.stored[start : start + length]

    block = whole._replace(stored=whole.stored[:begin_bytes])
    chunk = TemplateChunk(block, pa.string(), read_more)
    assert chunk.codes.equals(TemplateChunk(whole, pa.string()).codes)
    expected = [(parts[0].start, parts[0].stop)] if parts[0].stop > begin_bytes else []
    assert asked == expected
    for _ in range(2):
        assert chunk.texts().equals(logs(ROWS))
    if level and parts[-1].stop > begin_bytes:
        expected.append((parts[1].start, parts[-1].stop))
    assert asked == expected


def slice_of(data: bytes, start: int, length: int) -> bytes:
    return data[start : start + length]


def test_bytes_that_are_missing_or_damaged_when_they_are_read_are_refused() -> None:
    whole = templated_block()
    for changed in (whole.stored[:-1], whole.stored[:-1] + bytes([whole.stored[-1] ^ 1])):
        block = whole._replace(stored=whole.stored[:200])
        chunk = TemplateChunk(block, pa.string(), partial(slice_of, changed))
        assert len(chunk.codes) == ROWS
        with pytest.raises(CorruptFragmentError):
            chunk.texts()


def test_a_payload_too_short_for_its_frames_is_refused() -> None:
    block = templated_block()
    for length in (5, 8, 20, 30, 100):
        with pytest.raises(CorruptFragmentError):
            block._replace(stored=block.stored[:length]).decode(pa.string())
    with pytest.raises(CorruptFragmentError):
        _ = TemplateChunk(block._replace(stored=b""), pa.string()).head


def sizes_of(chunk: bytes) -> TemplateSizes:
    return read_sizes(BlockReader(MemorySource(chunk), "mem").read_beginning("v"))


@pytest.mark.parametrize("level", [0, 1])
def test_the_beginning_of_a_chunk_says_how_many_templates_it_has(level: int) -> None:
    made = make_chunk(logs(ROWS), level=level)
    head = TemplateChunk(block_of(made), pa.string()).head
    found = sizes_of(made.block(BlockKind.DATA)[: len(made.meta) + 100])
    assert (found.rows, found.templates) == (ROWS, len(head.templates))
    assert found.head_bytes > 0 < found.variables_bytes
    assert found.head_bytes + found.variables_bytes == len(made.stored)


def test_a_beginning_that_is_damaged_or_of_another_chunk_is_refused() -> None:
    whole = make_chunk(logs(ROWS), level=1)
    table_bytes = 8 + 16 * whole.stored[0]
    beginning = whole.block(BlockKind.DATA)[: BLOCK_HEADER_BYTES + len(whole.meta) + table_bytes]
    other = make_chunk(pa.array(range(100)), level=1).block(BlockKind.DATA)
    damaged = [beginning[:place] for place in range(len(beginning))]
    for place in range(len(beginning)):
        changed = bytearray(beginning)
        changed[place] ^= 1
        damaged.append(bytes(changed))
    for data in (*damaged, other):
        with pytest.raises((CorruptFragmentError, UnsupportedVersionError)):
            sizes_of(data)


def test_nodes_that_contradict_themselves_are_refused() -> None:
    meta = make_chunk(logs(ROWS), level=1).meta
    sound = template_counts(meta)
    for place in range(len(meta)):
        for bit in (1, 0x80):
            changed = bytearray(meta)
            changed[place] ^= bit
            try:
                found = template_counts(bytes(changed))
            except ValueError:
                continue
            assert len(found) == len(sound)
    for length in range(0, len(meta), NODE_BYTES):
        with pytest.raises(ValueError):
            template_counts(meta[:length])


@pytest.mark.parametrize("level", [1, 9])
@pytest.mark.parametrize(("digits", "is_dense"), [(18, True), (1, False)])
def test_numbers_that_a_codec_does_not_shrink_are_passed_by(
    level: int, digits: int, is_dense: bool
) -> None:
    rng = np.random.default_rng(1)
    columns = rng.integers(0, 10**digits, (20_000, 14)).astype(str)
    array = pa.array(["a1b1c1 took " + " of ".join(numbers) for numbers in columns.tolist()])
    chunk = make_chunk(array, level=level)
    block = block_of(chunk)
    assert (has_templates(block), block.header.codec) == (True, Codec.ZSTD_PARTS)
    _, numbers, _ = checked_parts(block.header, chunk.stored)
    of_numbers = numbers.stop - numbers.start
    found = TemplateChunk(block, pa.string())
    variables_bytes = len(block.raw()) - found.head_bytes
    assert (of_numbers > 0.9 * variables_bytes) == is_dense
    assert found.texts().equals(array)
    assert block.decode(pa.string()).equals(array)
