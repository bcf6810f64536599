"""Chunks as they are decoded: integers of every encoding as whatever they are for, text, what is refused."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lsm_fragment.arrays.buffers import pack_bits
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.arrays.type_json import type_to_json
from lsm_fragment.blocks.layout import MAX_META_BYTES, BlockKind
from lsm_fragment.container.block_reader import BlockReader
from lsm_fragment.container.chunk import make_chunk
from lsm_fragment.encodings.coding import decode_array
from lsm_fragment.encodings.node import Encoding, Node, join_buffers, pack_nodes
from lsm_fragment.encodings.packed import encode_backed_ints
from lsm_fragment.native.arrays.text import is_ascii
from tests.support import spec_reader
from tests.support.loops import loops
from tests.support.samples import SAMPLES, sample_array
from tests.support.wording import refuses

LENGTHS = [0, 1, 2, 100, 1023, 1024, 1025, 3000]
Rng = np.random.Generator


def decoded(root: Node, dtype: pa.DataType, *, keep: bool = False) -> pa.Array:
    array = decode_array(
        pack_nodes(root), join_buffers(root), dtype, root.length, keep_dictionary=keep
    )
    array.validate(full=True)
    return array


def by_specification(root: Node, dtype: pa.DataType) -> list[Any]:
    """The values that the second reader finds."""
    block = SimpleNamespace(meta=pack_nodes(root), raw=bytes(join_buffers(root)), rows=root.length)
    return spec_reader.decode(block, type_to_json(dtype))  # type: ignore[arg-type]


def integers(rng: Rng, length: int, low: int, high: int, *, in_runs: bool = True) -> Node:
    """Integers from `low` to `high`, both of 64 bits, by some encoding."""
    kinds = [Encoding.CONSTANT, Encoding.PACKED, Encoding.MULTIPLE]
    if in_runs and length:
        kinds.append(Encoding.RUN_LENGTH)
    kind = kinds[rng.integers(len(kinds))]
    if kind is Encoding.CONSTANT:
        return Node(encoding=kind, length=length, param=int(rng.integers(low, high, endpoint=True)))
    if kind is Encoding.PACKED:
        return encode_backed_ints(rng.integers(low, high, length, endpoint=True))
    if kind is Encoding.MULTIPLE:
        factor = int(rng.integers(1, 5))
        quotients = rng.integers(-(-low // factor), high // factor, length, endpoint=True)
        return Node(
            encoding=kind, length=length, param=factor, children=(encode_backed_ints(quotients),)
        )
    ends = np.unique(rng.integers(1, length, rng.integers(1, 50), endpoint=True))
    lengths = np.diff(ends, prepend=0)
    lengths[-1] += length - lengths.sum()
    values = integers(rng, len(lengths), low, high, in_runs=False)
    return Node(encoding=kind, length=length, children=(encode_backed_ints(lengths), values))


def with_nulls(rng: Rng, node: Node) -> Node:
    valid = rng.random(node.length) < 0.7
    if valid.all():
        return node
    nulls = node.length - int(valid.sum())
    buffers = (pack_bits(valid), *node.buffers)
    return replace(node, null_count=nulls, has_validity=True, buffers=buffers)


NUMBERS = [
    pa.int8(), pa.uint16(), pa.int32(), pa.uint64(), pa.int64(), pa.float16(), pa.float32(), pa.float64(),
    pa.decimal128(38, 2), pa.timestamp("us"),
]  # fmt: skip


@given(st.sampled_from(NUMBERS), st.sampled_from(LENGTHS), st.integers(0, 2**32))
def test_integers_become_numbers_of_every_type(dtype: pa.DataType, length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    bound = 2 ** int(rng.integers(1, 64))
    root = with_nulls(rng, integers(rng, length, -bound, bound - 1))
    found = decoded(root, dtype)
    if pa.types.is_timestamp(dtype):
        found = found.cast(pa.int64())
    assert list(map(repr, found.to_pylist())) == list(map(repr, by_specification(root, dtype)))


@given(
    st.sampled_from([pa.binary(), pa.string(), pa.large_binary(), pa.large_string()]),
    st.sampled_from(LENGTHS),
    st.integers(0, 2**32),
)
def test_lengths_become_offsets(dtype: pa.DataType, length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = integers(rng, length, 0, int(rng.integers(1, 300)))
    total = sum(spec_lengths(lengths))
    data = rng.integers(ord(" "), 127, total, np.uint8)
    root = Node(
        encoding=Encoding.VARLEN, length=length, param=total, buffers=(data,), children=(lengths,)
    )
    root = with_nulls(rng, root)
    assert decoded(root, dtype).to_pylist() == by_specification(root, dtype)


@given(st.sampled_from(LENGTHS), st.integers(0, 2**32))
def test_counts_become_lists(length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = integers(rng, length, 0, 3)
    items = integers(rng, sum(spec_lengths(counts)), -9, 9)
    root = with_nulls(rng, Node(encoding=Encoding.LIST, length=length, children=(counts, items)))
    for dtype in (pa.list_(pa.int16()), pa.large_list(pa.int64())):
        values = by_specification(root, dtype)
        assert decoded(root, dtype).to_pylist() == values


def spec_lengths(node: Node) -> list[int]:
    return by_specification(node, pa.int64())


VALUES = [
    pa.int8(), pa.uint16(), pa.float32(), pa.int64(), pa.decimal128(38, 2), pa.binary(3), pa.binary(16),
    pa.binary(20), pa.string(), pa.large_binary(),
]  # fmt: skip


@given(st.sampled_from(VALUES), st.sampled_from(LENGTHS[1:]), st.integers(0, 2**32), st.booleans())
def test_codes_become_values_or_stay(
    dtype: pa.DataType, length: int, seed: int, keep: bool
) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, min(length, 300), endpoint=True))
    codes = integers(rng, length, 0, count - 1)
    root = Node(
        encoding=Encoding.DICTIONARY, length=length, children=(codes, dictionary(rng, count, dtype))
    )
    root = with_nulls(rng, root)
    array = decoded(root, dtype, keep=keep)
    is_kept = keep and not pa.types.is_fixed_size_binary(dtype) and not pa.types.is_primitive(dtype)
    assert pa.types.is_dictionary(array.type) == (is_kept and not pa.types.is_decimal(dtype))
    assert list(map(repr, array.to_pylist())) == list(map(repr, by_specification(root, dtype)))


def dictionary(rng: Rng, count: int, dtype: pa.DataType) -> Node:
    if pa.types.is_string(dtype) or pa.types.is_large_binary(dtype):
        lengths = integers(rng, count, 0, 20)
        total = sum(spec_lengths(lengths))
        data = rng.integers(ord(" "), 127, total, np.uint8)
        return Node(
            encoding=Encoding.VARLEN,
            length=count,
            param=total,
            buffers=(data,),
            children=(lengths,),
        )
    width = dtype.byte_width
    bytes_ = rng.integers(0, 100, (count, width), np.uint8)
    if pa.types.is_decimal(dtype):
        bytes_[:, 8:] = 0  # no more digits than the type has
    if width <= 8 and not pa.types.is_fixed_size_binary(dtype) and rng.random() < 0.5:
        return integers(rng, count, -100, 100)
    return Node(encoding=Encoding.PLAIN, length=count, param=width, buffers=(bytes_.reshape(-1),))


# --- text -----------------------------------------------------------------------------------


@given(
    st.lists(st.text(max_size=20) | st.binary(max_size=6), min_size=1, max_size=20),
    st.sampled_from(["", "a", "a" * 15, "a" * 5000, "a" * 4091 + "é" + "a" * 5000]),
    st.sampled_from([pa.string(), pa.large_string()]),
    st.integers(0, 2**32),
)
def test_text_is_what_python_takes_for_it(
    values: list[str | bytes], before: str, dtype: pa.DataType, seed: int
) -> None:
    pieces = [before.encode(), *(v.encode() if isinstance(v, str) else v for v in values)]
    for root in (texts(pieces), with_nulls(np.random.default_rng(seed), texts(pieces))):
        valid = np.unpackbits(root.buffers[0], bitorder="little") if root.has_validity else [1] * 99
        present = [piece if ok else None for piece, ok in zip(pieces, valid, strict=False)]
        if all(piece is None or is_python_text(piece) for piece in present):
            expected = [None if piece is None else piece.decode() for piece in present]
            assert decoded(root, dtype).to_pylist() == expected
        else:
            with pytest.raises(ValueError, match="UTF8"):
                decoded(root, dtype)


@given(st.text(min_size=1, max_size=30), st.data())
def test_a_character_is_not_divided_among_strings(text: str, data: st.DataObject) -> None:
    whole = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    pieces = [
        whole[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True)
    ]
    if all(map(is_python_text, pieces)):
        assert "".join(decoded(texts(pieces), pa.string()).to_pylist()) == text
    else:
        with pytest.raises(ValueError, match="UTF8"):
            decoded(texts(pieces), pa.string())


def texts(pieces: list[bytes]) -> Node:
    lengths = packed(*map(len, pieces))
    data = b"".join(pieces)
    return Node(
        encoding=Encoding.VARLEN,
        length=len(pieces),
        param=len(data),
        buffers=(data,),
        children=(lengths,),
    )


def is_python_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.integers(0, 10_000), st.integers(0, 9_999), st.integers(0, 255))
def test_a_single_byte_beyond_ascii_is_seen(size: int, at: int, byte: int) -> None:
    data = bytearray(b"x" * size)
    if at < size:
        data[at] = byte
    assert is_ascii(pa.py_buffer(bytes(data))) == data.isascii()


def test_bytes_under_a_null_need_not_be_text() -> None:
    lengths = Node(
        encoding=Encoding.PACKED,
        length=3,
        width=8,
        param=3,
        buffers=(bytes(8) + b"\x08" + bytes(7), b"\2\3\1"),
    )
    root = Node(
        encoding=Encoding.VARLEN, length=3, null_count=1, param=6, has_validity=True,
        buffers=(b"\x05", "é".encode() + b"\xff\xc3\xa9" + b"z"), children=(lengths,),
    )  # fmt: skip
    assert decoded(root, pa.string()).to_pylist() == ["é", None, "z"]
    whole = replace(root, null_count=0, has_validity=False, buffers=root.buffers[1:])
    with refuses(ValueError):
        decoded(whole, pa.string())


# --- what is refused ------------------------------------------------------------------------


def constant(value: int, length: int = 4) -> Node:
    return Node(encoding=Encoding.CONSTANT, length=length, param=value)


def packed(*values: int) -> Node:
    return encode_backed_ints(np.array(values, dtype=np.int64))


def runs(*lengths: int, values: int | None = None, param: int = 0) -> Node:
    count = len(lengths) if values is None else values
    return Node(
        encoding=Encoding.RUN_LENGTH,
        length=4,
        param=param,
        children=(packed(*lengths), constant(7, count)),
    )


def strings(lengths: Node, data: bytes = b"abcd") -> Node:
    return Node(
        encoding=Encoding.VARLEN, length=4, param=len(data), buffers=(data,), children=(lengths,)
    )


def by_codes(codes: Node, param: int = 0) -> Node:
    values = Node(encoding=Encoding.PLAIN, length=2, param=8, buffers=(bytes(16),))
    return Node(encoding=Encoding.DICTIONARY, length=4, param=param, children=(codes, values))


def decimals(
    numerators: Node, digits: int = 2, rows: tuple[int, ...] = (), exceptions: int | None = None
) -> Node:
    count = len(rows) if exceptions is None else exceptions
    buffers = np.array(rows, dtype=np.uint32), np.ones(len(rows))
    param = digits | count << 8
    return Node(
        encoding=Encoding.DECIMAL, length=4, param=param, buffers=buffers, children=(numerators,)
    )


NULLS = Node(encoding=Encoding.NULL, length=4, null_count=4)
PAIR = pa.struct([("a", pa.int64()), ("b", pa.int64())])
REFUSED: dict[str, tuple[Node, pa.DataType]] = {
    "an empty run": (runs(2, 0, 2), pa.int64()),
    "runs that are too long": (runs(2, 3), pa.int64()),
    "runs that are too short": (runs(2, 1), pa.int64()),
    "a run too many": (runs(2, 2, 1), pa.int64()),
    "a run of fewer than no values": (runs(2, -1, 3), pa.int64()),
    "runs that overflow": (runs(2**62, 2**62, 2**62, 2**62 + 4), pa.int64()),
    "more runs than values": (runs(1, 1, 1, 1, 0), pa.int64()),
    "fewer values than runs": (runs(2, 2, values=1), pa.int64()),
    "an empty run among lengths": (strings(runs(2, 0, 2)), pa.binary()),
    "a parameter of nulls": (replace(NULLS, param=1), pa.int64()),
    "a bitmap of nulls": (
        replace(NULLS, has_validity=True, buffers=(bytes(1),)),
        pa.int64(),
    ),
    "a parameter of booleans": (
        Node(encoding=Encoding.PLAIN, length=4, param=1, buffers=(bytes(1),)),
        pa.bool_(),
    ),
    "a parameter of runs": (runs(2, 2, param=1), pa.int64()),
    "a parameter of codes": (by_codes(constant(1), param=1), pa.int64()),
    "a parameter of lists": (
        Node(encoding=Encoding.LIST, length=4, param=1, children=(constant(1), constant(1))),
        pa.list_(pa.int64()),
    ),
    "a parameter of lists of one size": (
        Node(encoding=Encoding.FIXED_LIST, length=4, param=2, children=(constant(1, 8),)),
        pa.list_(pa.int64(), 2),
    ),
    "a parameter of structs": (
        Node(encoding=Encoding.STRUCT, length=4, param=2, children=(constant(1), constant(1))),
        PAIR,
    ),
    "a field too few": (Node(encoding=Encoding.STRUCT, length=4, children=(constant(1),)), PAIR),
    "a field too many": (
        Node(encoding=Encoding.STRUCT, length=4, children=(constant(1),) * 3),
        PAIR,
    ),
    "a length below zero": (strings(packed(2, -1, 1, 2)), pa.binary()),
    "lengths of more bytes": (strings(packed(1, 1, 1, 2)), pa.binary()),
    "lengths of fewer bytes": (strings(packed(1, 1, 1, 0)), pa.binary()),
    "lengths that overflow": (strings(packed(2**62, 2**62, 2**62, 2**62 + 4)), pa.large_binary()),
    "lengths that overflow offsets": (strings(packed(2**31, 2**31, 2, 2)), pa.binary()),
    "a code that is too high": (by_codes(packed(0, 1, 2, 0)), pa.int64()),
    "a code of many bits": (by_codes(packed(0, 2**32, 1, 0)), pa.int64()),
    "a code below zero": (by_codes(packed(0, -1, 1, 0)), pa.int64()),
    "integers in integers": (
        Node(encoding=Encoding.MULTIPLE, length=4, param=2, children=(runs(2, 2),)),
        pa.int64(),
    ),
    "integers with nulls": (
        strings(
            Node(
                encoding=Encoding.CONSTANT,
                length=4,
                null_count=1,
                param=1,
                has_validity=True,
                buffers=(b"\7",),
            )
        ),
        pa.binary(),
    ),
    "a numerator of too many digits": (decimals(packed(1, 2, 3, 2**53 + 1)), pa.float64()),
    "a numerator far below zero": (decimals(packed(1, 2, 3, -(2**53) - 1)), pa.float64()),
    "exceptions beyond the values": (decimals(constant(1), rows=(1, 4)), pa.float64()),
    "exceptions out of order": (decimals(constant(1), rows=(2, 1)), pa.float64()),
    "an exception twice": (decimals(constant(1), rows=(2, 2)), pa.float64()),
    "more exceptions than values": (decimals(constant(1), rows=(0, 1, 2, 3, 4)), pa.float64()),
    "exceptions below zero": (decimals(constant(1), exceptions=-1), pa.float64()),
    "integers of a type without": (constant(1), pa.string()),
    "a character in two strings": (strings(constant(1), "é".encode() * 2), pa.string()),
    "half a pair of UTF-16": (strings(packed(0, 0, 3, 1), b"\xed\xa0\x80a"), pa.string()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_chunks_that_contradict_themselves_are_refused(name: str) -> None:
    root, dtype = REFUSED[name]
    for keep in (False, True):
        with refuses(ValueError):
            decode_array(pack_nodes(root), join_buffers(root), dtype, 4, keep_dictionary=keep)


@pytest.mark.parametrize(
    "name", ["a code that is too high", "a code of many bits", "a code below zero"]
)
def test_codes_of_strings_are_within_their_dictionary(name: str) -> None:
    codes = REFUSED[name][0].children[0]
    values = Node(
        encoding=Encoding.VARLEN, length=2, param=2, buffers=(b"ab",), children=(constant(1, 2),)
    )
    root = Node(encoding=Encoding.DICTIONARY, length=4, children=(codes, values))
    for keep in (False, True):
        with refuses(ValueError):
            decode_array(pack_nodes(root), join_buffers(root), pa.string(), 4, keep_dictionary=keep)


def test_a_dictionary_of_no_values_has_no_rows() -> None:
    empty = Node(
        encoding=Encoding.DICTIONARY,
        length=0,
        children=(constant(0, 0), Node(encoding=Encoding.NULL, length=0)),
    )
    for dtype in (pa.int64(), pa.string(), pa.binary(30)):
        assert decoded(empty, dtype).to_pylist() == []
    none = Node(
        encoding=Encoding.DICTIONARY,
        length=4,
        children=(constant(0), Node(encoding=Encoding.NULL, length=0)),
    )
    with refuses(ValueError):
        decode_array(pack_nodes(none), b"", pa.int64(), 4)


def test_the_largest_tree_is_refused_without_being_unpacked() -> None:
    meta = pack_nodes(constant(1, 1)) * (MAX_META_BYTES // 32)
    tracemalloc.start()
    with refuses(ValueError):
        decode_array(meta, b"", pa.int64(), 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


# --- threads --------------------------------------------------------------------------------


@loops("name", SAMPLES)
def test_threads_decode_one_chunk_at_the_same_time(name: str) -> None:
    array = to_storage(sample_array(name, 3))
    dtype = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    chunk = make_chunk(array, level=1)
    expected = repr(array.to_pylist())

    def read(_: int) -> str:
        block = BlockReader(BytesIO(chunk.block(BlockKind.DATA)), "mem").read_block("v")
        return repr(block.decode(dtype, keep_dictionary=True).to_pylist())

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(read, range(8))) == {expected}
