"""Payloads come back whole, small ones by a context that is kept and large ones by Arrow; both refuse what is
no payload."""

from __future__ import annotations

import random

import pytest
import zstandard

from lsm_fragment.blocks import compression
from lsm_fragment.blocks.compression import Part, compress, decompress, decompress_parts
from lsm_fragment.blocks.layout import Codec
from lsm_fragment.blocks.parts import joined_parts, read_parts

RAW = [b"abc" * 500, random.Random(1).randbytes(300) * 2, b"", b"x" * 1000]
FRAMES = [zstandard.ZstdCompressor(level=1).compress(raw) for raw in RAW]
LENGTH = len(b"".join(RAW))


@pytest.fixture(params=[0, 1 << 20], ids=["by Arrow", "by a kept context"])
def _pooled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "_POOLED_BYTES", request.param)


def raw_of(codec: Codec, stored: bytes, raw_bytes: int) -> bytes:
    return bytes(decompress(codec, stored, raw_bytes))


@pytest.mark.usefixtures("_pooled")
def test_parts_come_back_together_and_alone() -> None:
    parts = [Part(memoryview(raw)) for raw in (RAW[0], RAW[1])]
    codec, stored = compress(parts, 1)
    assert codec is Codec.ZSTD_PARTS
    assert raw_of(codec, stored, len(RAW[0]) + len(RAW[1])) == RAW[0] + RAW[1]
    first, second = read_parts(stored, len(stored))
    assert bytes(decompress_parts(stored[second.start :], [second], len(RAW[1]))) == RAW[1]
    alone = decompress_parts(stored[first.start : first.stop], [first], len(RAW[0]))
    assert bytes(alone) == RAW[0]


@pytest.mark.usefixtures("_pooled")
@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([FRAMES[0] + b"?", *FRAMES[1:]], id="bytes after a frame"),
        pytest.param([FRAMES[0] + FRAMES[3], *FRAMES[1:]], id="two frames in one part"),
        pytest.param([FRAMES[0][:-1], *FRAMES[1:]], id="a frame that ends early"),
        pytest.param([FRAMES[0], b"", *FRAMES[1:]], id="no frame"),
        pytest.param(FRAMES[:3], id="a part is missing"),
    ],
)
def test_parts_that_are_not_frames_of_the_stated_length_are_refused(frames: list[bytes]) -> None:
    with pytest.raises(ValueError, match=r"."):
        decompress(Codec.ZSTD_PARTS, joined_parts(frames), LENGTH)
    assert raw_of(Codec.ZSTD_PARTS, joined_parts(FRAMES), LENGTH) == b"".join(RAW)


@pytest.mark.usefixtures("_pooled")
def test_bytes_after_a_frame_are_refused() -> None:
    assert raw_of(Codec.ZSTD, FRAMES[0], len(RAW[0])) == RAW[0]
    with pytest.raises(ValueError, match=r"."):
        decompress(Codec.ZSTD, FRAMES[0] + b"?", len(RAW[0]))
