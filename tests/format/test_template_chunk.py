"""Chunks of templates, read as far as a query needs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from format import decode
from format.blocks import Block, BlockReader, MemorySource, make_chunk
from format.compression import compress
from format.decode import template_counts
from format.errors import CorruptFragmentError, UnsupportedVersionError
from format.layout import BLOCK_HEADER_BYTES, BlockKind, Codec
from format.nodes import NODE_BYTES
from format.slots import LoadedSlots, load
from format.template_chunk import TemplateChunk, TemplateSizes, has_templates, read_sizes
from tests.format.test_templates import block_of, logs, template_of

pytestmark = pytest.mark.usefixtures("templates_at_any_level")

ROWS = 700


def templated_block(level: int = 1, dtype: pa.DataType | None = None) -> Block:
    block = block_of(make_chunk(logs(ROWS).cast(dtype or pa.string()), level=level))
    assert has_templates(block)
    return block


def test_other_chunks_have_no_templates() -> None:
    assert not has_templates(block_of(make_chunk(pa.array(["a b"] * 100), level=1)))
    assert not has_templates(block_of(make_chunk(pa.array(range(100)), level=1)))


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
    assert chunk.head.codes.equals(TemplateChunk(block, pa.string()).head.codes)
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
def test_strings_are_given_again_without_decoding_variables_again(
    level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunk = TemplateChunk(templated_block(level), pa.string())
    loads: list[bool] = []

    def counted(*args: Any, **settings: Any) -> LoadedSlots:
        loads.append(True)
        return load(*args, **settings)

    monkeypatch.setattr(decode, "load", counted)
    _ = chunk.head
    assert not loads
    chosen = np.arange(ROWS) % 3 == 0
    for _ in range(50):  # far more strings together than a reader may hold of this chunk
        assert chunk.texts(chosen).equals(logs(ROWS).filter(pa.array(chosen)))
        assert chunk.texts().equals(logs(ROWS))
    assert len(loads) == 1


def test_strings_given_before_do_not_count_against_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    block = templated_block()
    size = logs(ROWS).nbytes
    monkeypatch.setattr("format.blocks.most_chunk_bytes", lambda _stored: 10 * size)
    chunk = TemplateChunk(block, pa.string())
    for _ in range(20):
        assert chunk.texts().equals(logs(ROWS))


def test_a_first_frame_that_ends_elsewhere_than_the_head_is_refused() -> None:
    block = templated_block()
    raw = block.raw()
    head_bytes = TemplateChunk(block, pa.string()).head_bytes
    for cut in (head_bytes + 8, len(raw)):
        codec, stored = compress((raw[:cut], raw[cut:]), 1)
        assert codec is Codec.ZSTD_PARTS
        header = block.header._replace(stored_bytes=len(stored))
        with pytest.raises(CorruptFragmentError, match="first frame"):
            TemplateChunk(block._replace(stored=stored, header=header), pa.string()).texts()


@pytest.mark.parametrize("length", [0, 1, 8, 2**40, 2**64 - 1])
def test_a_first_frame_of_another_length_is_refused(length: int) -> None:
    block = templated_block()
    forged = block._replace(stored=length.to_bytes(8, "little") + block.stored[8:])
    for read in (
        lambda: TemplateChunk(forged, pa.string()).head,
        lambda: forged.decode(pa.string()),
    ):
        with pytest.raises(CorruptFragmentError):
            read()


def test_a_payload_too_short_for_two_frames_is_refused() -> None:
    block = templated_block()
    with pytest.raises(CorruptFragmentError):
        block._replace(stored=block.stored[:5]).decode(pa.string())
    with pytest.raises(CorruptFragmentError):
        _ = TemplateChunk(block._replace(stored=b""), pa.string()).head


def sizes_of(chunk: bytes) -> TemplateSizes:
    return read_sizes(BlockReader(MemorySource(chunk), "mem"), "v")


@pytest.mark.parametrize("level", [0, 1])
def test_the_beginning_of_a_chunk_says_how_many_templates_it_has(level: int) -> None:
    made = make_chunk(logs(ROWS), level=level)
    head = TemplateChunk(block_of(made), pa.string()).head
    found = sizes_of(made.block(BlockKind.DATA)[: len(made.meta) + 100])
    assert found.rows == ROWS
    assert (found.templates, found.slots) == (len(head.templates), len(head.alphabets))
    assert found.head_bytes > 0 < found.variables_bytes
    assert found.head_bytes + found.variables_bytes == len(made.stored)


def test_a_beginning_that_is_damaged_or_of_another_chunk_is_refused() -> None:
    whole = make_chunk(logs(ROWS), level=1)
    beginning = whole.block(BlockKind.DATA)[: BLOCK_HEADER_BYTES + len(whole.meta) + 8]
    other = make_chunk(pa.array(range(100)), level=1).block(BlockKind.DATA)
    damaged = [beginning[:place] for place in range(len(beginning))]
    for place in range(BLOCK_HEADER_BYTES + len(whole.meta)):
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
