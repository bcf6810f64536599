"""Large chunks of text, decoded some rows at a time: the same strings, and the same refusals."""

from __future__ import annotations

import pyarrow as pa
import pytest
from msgspec.structs import replace

from lsm_fragment.blocks.compression import FrameReader, Part, compress
from lsm_fragment.container import text_stream as module
from lsm_fragment.container.block import Block
from lsm_fragment.container.chunk import make_chunk
from lsm_fragment.container.text_stream import text_stream
from lsm_fragment.encodings import vocabulary
from lsm_fragment.encodings.coding import encode_array
from lsm_fragment.errors import CorruptFragmentError
from tests.format.test_templates import block_of, free_text
from tests.support.wording import refuses

PIECE_BYTES = 20_000


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", PIECE_BYTES)
    monkeypatch.setattr(module, "_MIN_RATIO", 0)
    monkeypatch.setattr(vocabulary, "MIN_TEXT_BYTES", 1 << 40)


def texts(rows: int = 4000) -> pa.Array:
    """Words, among them empty ones, some beyond ASCII, and a value larger than a piece."""
    values = [f"{text} é{'ü' * (n % 5)}" for n, text in enumerate(free_text(rows).to_pylist())]
    values[7], values[100], values[-1] = "", "long " * PIECE_BYTES, ""
    return pa.array(values)


def pieces_of(block: Block, dtype: pa.DataType) -> list[pa.Array]:
    stream = text_stream(block, dtype)
    assert stream is not None
    found, rows = [], 0
    while rows < block.header.rows:
        found.append(stream.next())
        rows += len(found[-1])
    return found


@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("more", range(9))
def test_pieces_are_the_strings_of_the_chunk(dtype: pa.DataType, more: int) -> None:
    """Whatever is left of the text beyond whole words."""
    array = pa.concat_arrays([texts(), pa.array(["x" * more])]).cast(dtype)
    block = block_of(make_chunk(array, level=1))
    assert block.encoding == "VARLEN"
    pieces = pieces_of(block, dtype)
    assert len(pieces) > 5
    assert pa.concat_arrays(pieces).equals(array)
    for piece in pieces:
        piece.validate(full=True)
        assert len(piece) == 1 or piece.nbytes < 2 * PIECE_BYTES


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["short", "text"] * 40),
        pa.array([None, *texts().to_pylist()]),
        pa.array(range(200_000)),
        pa.array([f"{n % 3}" for n in range(200_000)]),
    ],
    ids=["little text", "nulls", "numbers", "few values"],
)
def test_other_chunks_are_not_streamed(array: pa.Array) -> None:
    assert text_stream(block_of(make_chunk(array, level=1)), array.type) is None


def test_a_chunk_is_not_streamed_where_that_saves_little_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    block = block_of(make_chunk(texts(), level=1))
    monkeypatch.setattr(module, "_MIN_RATIO", 2)
    assert text_stream(block, pa.string()) is None  # its window is as large as the text


def with_parts(array: pa.Array, *parts: bytes) -> Block:
    """Returns the block of other parts with valid checksums, as a hostile writer would."""
    chunk = make_chunk(array, level=1)
    codec, stored = compress([Part(memoryview(part)) for part in parts], 1)
    return block_of(replace(chunk, codec=codec, stored=stored, raw_bytes=sum(map(len, parts))))


def parts_of(array: pa.Array) -> list[bytes]:
    return [bytes(part.data) for part in encode_array(array).parts]


def test_lengths_that_do_not_add_up_are_refused() -> None:
    array, other = texts(), pa.concat_arrays([texts(3999), pa.array(["another length"])])
    text, _ = parts_of(array)
    _, lengths = parts_of(other)
    with refuses(CorruptFragmentError):
        pieces_of(with_parts(array, text, lengths), pa.string())


def test_text_that_is_not_utf8_is_refused_where_it_is() -> None:
    text, lengths = parts_of(texts())
    block = with_parts(texts(), text[:-64] + b"\xff" * 64, lengths)
    stream = text_stream(block, pa.string())
    assert stream is not None
    stream.next()
    with refuses(CorruptFragmentError):
        while True:
            stream.next()


def test_a_text_part_of_another_size_is_not_streamed() -> None:
    text, lengths = parts_of(texts())
    for other in (text[:-8], text + bytes(8), text[:-3]):
        assert text_stream(with_parts(texts(), other, lengths), pa.string()) is None


@pytest.mark.parametrize("at", [5, 0.3, 0.9])
def test_a_damaged_frame_is_refused(at: float) -> None:
    block = block_of(make_chunk(texts(), level=1))
    stored = bytearray(block.stored)
    place = 60 + int(at if at > 1 else at * len(stored))
    stored[place : place + 16] = bytes(byte ^ 0x5A for byte in stored[place : place + 16])
    with pytest.raises(CorruptFragmentError):
        pieces_of(block._replace(stored=bytes(stored)), pa.string())


def test_a_frame_may_have_neither_fewer_nor_more_bytes_than_are_read() -> None:
    _, frame = compress([Part(memoryview(b"some text " * 100))], 1)
    with refuses(ValueError):
        FrameReader(memoryview(frame)).read_into(memoryview(bytearray(1001)))
    reader = FrameReader(memoryview(frame))
    reader.read_into(memoryview(bytearray(999)))
    with refuses(ValueError):
        reader.finish()
