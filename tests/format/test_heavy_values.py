"""Ways around copies of heavy values give what the plain way gives."""

from __future__ import annotations

import io
import random

import pyarrow as pa
import pytest

from lsm_fragment.blocks import compression
from lsm_fragment.blocks.compression import Part, compress, decompress
from lsm_fragment.blocks.layout import BlockKind, Codec
from lsm_fragment.container.block_reader import BlockReader
from lsm_fragment.container.chunk import make_chunk
from tests.support.spec_reader import Block, decode
from tests.support.wording import refuses


def test_large_payloads_are_decompressed_as_small_ones_are(monkeypatch) -> None:
    raw = bytes(range(256)) * 1000
    codec, stored = compress((Part(memoryview(raw)),), 1)
    monkeypatch.setattr(compression, "_TRUST_BYTES", 10)
    monkeypatch.setattr(compression, "_STEP_BYTES", 1000)
    assert decompress(codec, stored, len(raw)) == raw
    for wrong in (len(raw) - 1, len(raw) + 1):
        with refuses(ValueError):
            decompress(codec, stored, wrong)


@pytest.mark.parametrize("rest", range(8))
@pytest.mark.parametrize("has_null", [False, True])
def test_much_text_is_compressed_apart_from_its_lengths(rest: int, has_null: bool) -> None:
    rng = random.Random(rest)
    texts = ["".join(rng.choices("abcdefgh", k=30)) * 8 for _ in range(2000)]
    texts[0] += "x" * rest
    array = pa.array([*texts, None if has_null else ""])
    sliced = pa.array(["before", *array.to_pylist(), "after"]).slice(1, len(array))
    chunk = make_chunk(array, level=1)
    assert chunk.codec == (Codec.ZSTD if has_null else Codec.ZSTD_PARTS)
    assert make_chunk(sliced, level=1) == chunk
    stored = chunk.block(BlockKind.DATA)
    block = BlockReader(io.BytesIO(stored), "test").read_block()
    assert block.decode(pa.string()).equals(array)
    assert decode(Block(stored, 0), {"kind": "string"}) == array.to_pylist()


def test_text_that_does_not_shrink_is_stored_as_it_is() -> None:
    array = pa.array([random.Random(0).randbytes(400_000)], pa.binary())
    chunk = make_chunk(array, level=1)
    assert chunk.codec == Codec.NONE
    block = BlockReader(io.BytesIO(chunk.block(BlockKind.DATA)), "test").read_block()
    assert block.decode(pa.binary()).equals(array)
