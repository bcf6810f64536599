"""Blocks are the same however their bytes come, and however many are read ahead."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from lsm_fragment.blocks.layout import BLOCK_HEADER_BYTES, BlockKind
from lsm_fragment.container.block import Block
from lsm_fragment.container.block_reader import BlockReader
from lsm_fragment.container.chunk import make_block, make_chunk
from lsm_fragment.container.stream_reader import FragmentStream
from lsm_fragment.errors import CorruptFragmentError
from tests.support.fragments import write_fragment

CHUNK = make_chunk(pa.array(["a", None, "b" * 3000]), level=0)
BYTES = b"".join(
    (
        make_block(BlockKind.COLUMN, b"name"),
        CHUNK.block(BlockKind.DATA),
        make_block(BlockKind.COLUMN, b""),
        CHUNK.block(BlockKind.KEY),
    )
)
PIECES = [1, 7, 39, 40, 41, 200, 1024, 1 << 20]
AHEAD = [0, 41, 100, 1024, 1 << 16]


class Source:
    """Gives at most `piece` bytes at a time."""

    def __init__(self, data: bytes, piece: int) -> None:
        self.data, self.piece, self.at = data, piece, 0

    def read(self, max_bytes: int, /) -> bytes:
        assert max_bytes > 0
        data = self.data[self.at : self.at + min(max_bytes, self.piece)]
        self.at += len(data)
        return data


def reader(data: bytes, piece: int, ahead: int) -> BlockReader:
    return BlockReader(Source(data, piece), "mem", ahead_bytes=ahead)


def expected() -> list[Block]:
    blocks = reader(BYTES, 1 << 20, 0)
    return [blocks.read_block() for _ in range(4)]


@pytest.mark.parametrize("ahead", AHEAD)
@pytest.mark.parametrize("piece", PIECES)
def test_blocks_do_not_depend_on_pieces(piece: int, ahead: int) -> None:
    blocks = reader(BYTES, piece, ahead)
    for block in expected():
        assert blocks.next_kind() == block.header.kind
        assert blocks.offset == block.offset
        assert blocks.read_block() == block
    assert blocks.at_end()


@pytest.mark.parametrize("ahead", AHEAD)
@pytest.mark.parametrize("piece", PIECES)
def test_skipped_blocks_do_not_depend_on_pieces(piece: int, ahead: int) -> None:
    blocks = reader(BYTES + b"x", piece, ahead)
    for place, block in enumerate(expected()):
        if place % 2:
            assert blocks.read_block() == block
        else:
            blocks.skip_block()
    assert blocks.offset == len(BYTES)
    assert not blocks.at_end()


def test_no_more_than_was_said_is_read_ahead() -> None:
    source = Source(BYTES, 1 << 20)
    BlockReader(source, "mem", ahead_bytes=100).next_kind()
    assert source.at == 100
    source = Source(BYTES, 1 << 20)
    BlockReader(source, "mem").next_kind()
    assert source.at == BLOCK_HEADER_BYTES


READ: list[Callable[[BlockReader], object]] = [
    lambda blocks: blocks.read_block("c"),
    BlockReader.skip_block,
    lambda blocks: (blocks.next_kind(), blocks.read_block("c")),
]


@pytest.mark.parametrize("ahead", [0, 1024])
@pytest.mark.parametrize("read", READ, ids=["read", "skip", "look"])
def test_a_truncation_is_noticed_where_the_source_ends(
    read: Callable[[BlockReader], object], ahead: int
) -> None:
    block = CHUNK.block(BlockKind.DATA)
    for length in [0, 1, 39, 40, 41, 100, 2000, len(block) - 1]:
        with pytest.raises(CorruptFragmentError) as caught:
            read(reader(block[:length], 17, ahead))
        assert caught.value.offset is not None
        assert caught.value.offset <= length


def test_equal_headers_are_parsed_once() -> None:
    data = write_fragment(pa.table({"k": [1, 2], "v": ["a", "b"]}), "k")
    first, second = (FragmentStream(Source(data, 50), "mem") for _ in range(2))
    assert first.header is second.header
