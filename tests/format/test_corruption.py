"""Damage of any kind is an error that names its place; never wrong rows, never a lied-about allocation."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_fragment.blocks import layout
from lsm_fragment.blocks.layout import (
    BLOCK_HEADER_BYTES,
    BlockKind,
    Codec,
    checksum64,
    pack_block_header,
)
from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.encodings.node import NODE_BYTES
from lsm_fragment.errors import (
    CorruptFragmentError,
    FormatError,
    NotAFragmentError,
    UnsupportedVersionError,
)
from tests.support.fragments import BytesSource, read_random, read_stream, rows_of, write_fragment
from tests.support.wording import refuses

READERS = {"by footer": read_random, "front to back": read_stream}


def small_table() -> pa.Table:
    return pa.table(
        {
            "k": pa.array([1, 1, 2, 3, 5]),
            "s": ["a", None, "bb", "a", "a"],
            "l": pa.array([[1], None, [], [2, 3], [4]]),
            "f": [0.5, 1.5, None, 2.5, 3.5],
        }
    )


FRAGMENT = write_fragment(small_table(), "k")


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_every_flipped_byte_is_noticed(read: Callable[[bytes], pa.Table]) -> None:
    expected = rows_of(small_table())
    silent = []
    for at in range(len(FRAGMENT)):
        damaged = bytearray(FRAGMENT)
        damaged[at] ^= 0x41
        try:
            assert rows_of(read(bytes(damaged))) == expected
            silent.append(at)
        except FormatError:
            pass
    if read is read_stream:
        assert silent == []
    else:
        # Random access need not read column starts; what it does read, it checks.
        starts = {at for at in range(len(FRAGMENT)) if FRAGMENT[at : at + 2] == b"C\x00"}
        assert all(any(start <= at < start + 48 for start in starts) for at in silent)


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_every_truncation_is_noticed(read: Callable[[bytes], pa.Table]) -> None:
    for length in range(len(FRAGMENT)):
        with pytest.raises(FormatError):
            read(FRAGMENT[:length])


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_bytes_after_the_end_are_noticed(read: Callable[[bytes], pa.Table]) -> None:
    with pytest.raises(FormatError):
        read(FRAGMENT + b"\0")


def test_the_error_names_object_offset_and_column() -> None:
    at = FRAGMENT.index(b"D\x00", FRAGMENT.index(b"C\x00"))
    damaged = bytearray(FRAGMENT)
    damaged[at + BLOCK_HEADER_BYTES + 2 * NODE_BYTES] ^= 1
    with refuses(CorruptFragmentError) as caught:
        read_stream(bytes(damaged))
    assert caught.value.name == "mem"
    assert caught.value.offset == at
    assert caught.value.column == "f"


@pytest.mark.parametrize("data", [b"", b"PAR1", b"x" * 5000, b"\x89LSM"])
def test_other_files_are_not_fragments(data: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        read_stream(data)
    assert isinstance(caught.value, NotAFragmentError | CorruptFragmentError)


def test_a_newer_version_is_refused_with_advice() -> None:
    head = struct.pack("<8sHH", layout.MAGIC, layout.VERSION + 1, 0)
    newer = head + layout.checksum32(head).to_bytes(4, "little") + FRAGMENT[16:]
    with refuses(UnsupportedVersionError):
        read_stream(newer)


def forge(change: Callable[[layout.BlockHeader, bytes, bytes], bytes]) -> bytes:
    """The fragment with its first data block replaced by one with valid checksums."""
    at = FRAGMENT.index(b"D\x00", FRAGMENT.index(b"C\x00"))
    head = layout.unpack_block_header(FRAGMENT[at : at + BLOCK_HEADER_BYTES], name="mem", offset=at)
    meta_end = at + BLOCK_HEADER_BYTES + head.meta_bytes
    meta = FRAGMENT[at + BLOCK_HEADER_BYTES : meta_end]
    block = change(head, meta, FRAGMENT[meta_end : at + head.block_bytes])
    return FRAGMENT[:at] + block + FRAGMENT[at + head.block_bytes :]


def rebuilt(
    meta: bytes, stored: bytes, *, rows: int, raw_bytes: int | None = None, codec=Codec.NONE
) -> bytes:
    raw = len(stored) if raw_bytes is None else raw_bytes
    head = pack_block_header(
        BlockKind.DATA, codec, rows=rows, meta=meta, stored_bytes=len(stored), raw_bytes=raw,
        payload_checksum=checksum64(stored),
    )  # fmt: skip
    return head + meta + stored


def node(encoding: int, length: int, *, flags: int = 0, width: int = 0, children: int = 0, nulls: int = 0, param: int = 0) -> bytes:  # fmt: skip  # noqa: E501
    return struct.pack("<BBBBIQQq", encoding, flags, width, 0, children, length, nulls, param)


FORGERIES: dict[str, tuple[bytes, bytes]] = {
    "an unknown encoding": (node(77, 5), b""),
    "no nodes": (b"", b""),
    "half a node": (node(0, 5, nulls=5)[:-1], b""),
    "too many values": (node(1, 6, param=8), bytes(48)),
    "a buffer past the end": (node(1, 5, param=8), bytes(32)),
    "a payload with leftovers": (node(1, 5, param=8), bytes(48)),
    "integers of three bytes": (node(2, 5, width=3), bytes(16)),
    "another width than the type's": (node(1, 5, param=4), bytes(24)),
    "strings where floats belong": (node(6, 5, children=1) + node(2, 5), b""),
    "a code outside its dictionary": (
        node(5, 5, children=2) + node(2, 5, param=9) + node(1, 1, param=8),
        bytes(8),
    ),
    "a negative code": (
        node(5, 5, children=2) + node(2, 5, param=-1) + node(1, 1, param=8),
        bytes(8),
    ),
    "a dictionary larger than the chunk": (
        node(5, 5, children=2) + node(2, 5) + node(1, 2**40, param=8),
        bytes(8),
    ),
    "a null in a dictionary": (
        node(5, 5, children=2) + node(2, 5) + node(0, 1, nulls=1),
        b"",
    ),
    "a missing child": (node(5, 5, children=2) + node(2, 5), b""),
    "a child too many": (node(1, 5, param=8, children=1) + node(2, 5), bytes(40)),
    "more constants than anybody has": (
        node(5, 5, children=2) + node(4, 5, children=2) + node(2, 2**40) + node(2, 2**40),
        b"",
    ),
    "nulls without a bitmap": (node(1, 5, param=8, nulls=2), bytes(40)),
    "unknown flags": (node(1, 5, param=8, flags=4), bytes(40)),
}


@pytest.mark.parametrize(("meta", "stored"), FORGERIES.values(), ids=FORGERIES.keys())
def test_lies_with_valid_checksums_are_noticed(meta: bytes, stored: bytes) -> None:
    forged = forge(lambda head, _meta, _stored: rebuilt(meta, stored, rows=head.rows))
    with pytest.raises(CorruptFragmentError):
        read_stream(forged)


def test_a_chunk_of_other_rows_than_its_row_group_is_noticed() -> None:
    forged = forge(lambda head, _m, _s: rebuilt(node(0, 4, nulls=4), b"", rows=4))
    with refuses(CorruptFragmentError):
        read_stream(forged)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_lied_about_length_is_never_allocated(codec: Codec) -> None:
    forged = forge(
        lambda head, meta, stored: rebuilt(meta, stored, rows=5, raw_bytes=1 << 45, codec=codec)
    )
    tracemalloc.start()
    with pytest.raises(CorruptFragmentError):
        read_stream(forged)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 << 20


def test_a_stored_length_past_the_end_is_never_allocated() -> None:
    def lie(head: layout.BlockHeader, meta: bytes, stored: bytes) -> bytes:
        block = bytearray(rebuilt(meta, stored, rows=5))
        block[16:32] = struct.pack("<QQ", 1 << 45, 1 << 45)
        block[12:16] = bytes(4)
        checksum = layout.checksum32(bytes(block[:40]) + meta)
        block[12:16] = checksum.to_bytes(4, "little")
        return bytes(block)

    tracemalloc.start()
    with refuses(CorruptFragmentError):
        read_stream(forge(lie))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 << 20


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_random_damage_never_gives_wrong_rows(data: st.DataObject) -> None:
    damaged = bytearray(FRAGMENT)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(FormatError):
        assert rows_of(read_stream(bytes(damaged))) == rows_of(small_table())


def test_a_list_of_more_constants_than_anybody_has_is_refused_before_it_is_allocated() -> None:
    elements = 2**30
    meta = node(7, 5, children=2) + node(3, 5, width=64, param=40) + node(2, elements, param=7)
    counts = struct.pack("<QQ5Q", 0, 64, elements, 0, 0, 0, 0)
    footer = FragmentReader(BytesSource(FRAGMENT), len(FRAGMENT), "mem").footer
    chunk = footer.columns["l"][0]
    rest = FRAGMENT[chunk.offset + chunk.stored_bytes :]
    forged = FRAGMENT[: chunk.offset] + rebuilt(meta, counts, rows=5) + rest
    tracemalloc.start()
    with refuses(CorruptFragmentError) as caught:
        read_stream(forged)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.column == "l"
    assert peak < 40 << 20
