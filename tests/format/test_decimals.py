"""Doubles that are decimals: stored as integers, and back to the bit."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm_fragment.blocks.layout import BlockKind, unpack_block_header
from lsm_fragment.container.block import Block
from lsm_fragment.container.chunk import make_chunk
from lsm_fragment.encodings.coding import decode_array, encode_array
from lsm_fragment.encodings.node import Encoding, Node, join_buffers, pack_nodes
from lsm_fragment.keys.extremes import min_max
from tests.support.wording import refuses


def round_trip(values: list[float | None]) -> Encoding:
    array = pa.array(values, pa.float64())
    encoded = encode_array(array)
    back = decode_array(encoded.meta, encoded.raw, pa.float64(), len(array))
    assert back.null_count == array.null_count
    wanted = np.array([math.nan if v is None else v for v in values])
    found = np.array([math.nan if v is None else v for v in back.to_pylist()])
    assert wanted.view(np.uint64).tolist() == found.view(np.uint64).tolist()
    return encoded.encoding


@pytest.mark.parametrize(
    ("values", "encoding"),
    [
        ([0.1, 0.25, None, 12.5], Encoding.DECIMAL),
        ([1.0, 2.0, 3.0], Encoding.DECIMAL),
        ([n / 100 for n in range(63)] + [math.nan], Encoding.DECIMAL),
        ([n / 100 for n in range(63)] + [-0.0], Encoding.DECIMAL),
        ([0.0, -0.0, 1.5], Encoding.PACKED),
        ([0.5, math.inf], Encoding.MULTIPLE),
        ([1 / 3, 1 / 7], Encoding.PACKED),
        ([2.0**60, 0.5], Encoding.MULTIPLE),
        ([5e-324, 1.0], Encoding.PACKED),
    ],
)
def test_decimals_of_few_digits_are_stored_as_integers(values, encoding) -> None:
    assert round_trip(values) is encoding


@pytest.mark.parametrize("other", [math.nan, math.inf, -math.inf, -0.0, 1 / 3, 2.0**60, 5e-324])
def test_others_may_be_in_any_row_of_decimals(other: float) -> None:
    for row in (0, 1, 63, 64, 100, 128, 199):
        values: list[float | None] = [n / 100 for n in range(200)]
        values[row] = other
        assert round_trip(values) is Encoding.DECIMAL


@given(st.lists(st.floats() | st.sampled_from([0.25, -0.0, math.nan]) | st.none(), max_size=50))
def test_doubles_come_back_to_the_bit(values) -> None:
    round_trip(values)


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=50), st.integers(0, 12))
def test_decimals_come_back_to_the_bit(numbers, digits: int) -> None:
    round_trip([float(f"{n}e-{digits}") for n in numbers])


@pytest.mark.parametrize(
    ("digits", "value"), [(-1, 1), (16, 1), (2**40, 1), (1 << 8, 1), (1, 2**53 + 1)]
)
def test_forged_decimals_are_errors(digits: int, value: int) -> None:
    node = Node(
        encoding=Encoding.DECIMAL,
        length=3,
        param=digits,
        children=(Node(encoding=Encoding.CONSTANT, length=3, param=value),),
    )
    with refuses(ValueError):
        decode_array(pack_nodes(node), join_buffers(node), pa.float64(), 3)


def test_dictionaries_of_dictionaries_are_errors_however_deep() -> None:
    one = Node(encoding=Encoding.CONSTANT, length=1)
    leaf = Node(
        encoding=Encoding.LIST, length=1, children=(one, Node(encoding=Encoding.CONSTANT, length=0))
    )
    head = pack_nodes(Node(encoding=Encoding.DICTIONARY, length=1, children=(one, leaf)))[:64]
    with refuses(ValueError):
        decode_array(head * 5000 + pack_nodes(leaf), b"", pa.list_(pa.int64()), 1)


def test_statistics_know_one_zero() -> None:
    for values in ([0.0, -0.0], [-0.0, 0.0], [-0.0]):
        low, high = min_max(pa.array(values))
        assert (math.copysign(1, low), math.copysign(1, high)) == (1, 1)


def test_a_want_of_memory_is_not_taken_for_a_damaged_chunk(monkeypatch) -> None:
    chunk = make_chunk(pa.array([1, 2, 3]), level=1)
    from lsm_fragment.container import block as container_block

    def fail(*_arguments, **_options):
        raise MemoryError

    monkeypatch.setattr(container_block, "decode_array", fail)
    header = unpack_block_header(chunk.parts(BlockKind.DATA)[0], name="f", offset=0)
    block = Block(
        header=header, meta=chunk.meta, stored=chunk.stored, offset=0, name="f", column="c"
    )
    with pytest.raises(MemoryError):
        block.decode(pa.int64())
