"""Compiled loops and their twins in numpy give the same, to the bit."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from format import kernels
from format.arrays import in_order_of_use
from format.blocks import make_chunk
from format.encode import by_dictionary, encode_ints
from format.hashing import value_hashes
from format.keys import min_max
from format.layout import BlockKind
from format.nodes import join_buffers, pack_nodes

STRING_TYPES = [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()]
INT_TYPES = [
    pa.int8(),
    pa.uint8(),
    pa.int16(),
    pa.uint16(),
    pa.int32(),
    pa.uint32(),
    pa.int64(),
    pa.uint64(),
]


def both_ways(work: Callable[[], Any]) -> tuple[Any, Any]:
    """What `work` gives with compiled loops, and without."""
    compiled = work()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "compiled", None)
        return compiled, work()


def strings(draw: st.DrawFn, dtype: pa.DataType) -> pa.Array:
    pool = draw(
        st.lists(st.text(max_size=30) | st.text("ab\0", min_size=8, max_size=60), min_size=1)
    )
    picks = draw(st.lists(st.none() | st.sampled_from(pool), max_size=200))
    values = [v if v is None or "string" in str(dtype) else v.encode() for v in picks]
    array = pa.array(values, dtype)
    return array.slice(draw(st.integers(0, max(0, len(array) - 1))))


@given(st.data(), st.sampled_from(STRING_TYPES))
def test_strings_are_hashed_coded_and_bounded_alike(
    data: st.DataObject, dtype: pa.DataType
) -> None:
    array = data.draw(st.composite(lambda draw: strings(draw, dtype))())
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    for is_whole in (False, True):
        one, other = both_ways(partial(value_hashes, array, is_whole=is_whole))
        assert one[valid].tolist() == other[valid].tolist()
    one, other = both_ways(lambda: by_dictionary(array))
    assert one.equals(other) and one.type == other.type
    one, other = both_ways(lambda: min_max(array))
    assert one == other
    one, other = both_ways(lambda: make_chunk(array, level=1).block(BlockKind.DATA))
    assert one == other


@given(st.data(), st.sampled_from(INT_TYPES), st.booleans())
def test_integers_are_encoded_alike(data: st.DataObject, dtype: pa.DataType, nulls: bool) -> None:
    bits, sign = dtype.bit_width, str(dtype)[0] != "u"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if sign else (0, (1 << bits) - 1)
    number = st.integers(low, high) | st.integers(max(low, -3), 9)
    runs = st.tuples(number, st.sampled_from([1, 1, 2, 40])).map(lambda run: [run[0]] * run[1])
    values = [v for run in data.draw(st.lists(runs, min_size=1, max_size=60)) for v in run]
    array = pa.array([None if nulls and n % 7 == 3 else v for n, v in enumerate(values)], dtype)
    array = array.slice(data.draw(st.integers(0, len(array) - 1)))
    one, other = both_ways(lambda: make_chunk(array, level=1).block(BlockKind.DATA))
    assert one == other


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.int64, np.uint64])
def test_steps_that_wrap_around_are_encoded_alike(dtype: type[Any]) -> None:
    info = np.iinfo(dtype)
    values = np.array([info.min, info.max, info.min, 0, info.max] * 900, dtype=dtype)

    def encoded() -> tuple[bytes, bytes]:
        node = encode_ints(values)
        return pack_nodes(node), bytes(join_buffers(node))

    one, other = both_ways(encoded)
    assert one == other


@given(st.lists(st.none() | st.integers(0, 9), max_size=100), st.integers(0, 20))
def test_codes_come_in_the_order_of_their_first_use_alike(
    codes: list[int | None], start: int
) -> None:
    indices = pa.array(codes, pa.int32()).slice(start)
    values = pa.array([f"value {n}" for n in range(10)])
    array = pa.DictionaryArray.from_arrays(indices, values)
    one, other = both_ways(lambda: in_order_of_use(array))
    assert one.indices.equals(other.indices) and one.dictionary.equals(other.dictionary)
    assert one.cast(pa.string()).equals(array.cast(pa.string()))
    used = list(dict.fromkeys(code for code in indices.to_pylist() if code is not None))
    assert one.dictionary.to_pylist() == [f"value {n}" for n in used]


def test_strings_of_many_lengths_are_hashed_alike_up_to_a_long_one() -> None:
    array = pa.array([bytes(range(256)) * 8][:1] + [bytes([n % 251]) * n for n in range(1100)])
    for is_whole in (False, True):
        one, other = both_ways(partial(value_hashes, array, is_whole=is_whole))
        assert one.tolist() == other.tolist()
        assert len(set(one.tolist())) == len(array)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler, so that numpy does the work")
def test_the_compiled_loops_are_in_use_unless_they_are_switched_off() -> None:
    code = "from format import kernels; print(kernels.compiled is not None)"
    for value, expected in (("1", "True"), ("0", "False")):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={"COMPACTOR_COMPILED": value, "PATH": "/usr/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected
