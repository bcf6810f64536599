"""Arrays as others make them: valid, and yet such that Arrow's own functions die of them or change values.
Each is looked at in a process of its own, so that a death is a failure that names its seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pyarrow as pa
import pytest

from lsm_fragment.arrays.canonical import canonical
from lsm_fragment.arrays.dictionaries import coded
from lsm_fragment.arrays.joining import concat_storage
from lsm_fragment.arrays.storage import plain, to_logical, to_storage
from lsm_fragment.arrays.types import table_type
from lsm_fragment.arrays.validity import ValueCheck, check_whole
from tests.support.bits import bits_of
from tests.support.outside import any_array, any_type

SEEDS = 600


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Executor]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


def taken_in(array: pa.Array) -> pa.Array:
    batch = canonical(pa.record_batch({"v": array}), check_whole)
    ValueCheck().check(batch)
    return batch.column(0)


def check_seed(seed: int) -> None:
    random = np.random.default_rng(seed)
    dtype = any_type(random)
    arrays = [any_array(random, dtype, int(random.integers(9))) for _ in range(3)]
    stored = []
    for array in arrays:
        inside = taken_in(array)
        assert bits_of(inside) == bits_of(array)
        stored.append(to_storage(inside))
        stored[-1].validate(full=True)
        assert bits_of(stored[-1]) == bits_of(array)
    wanted = [value for array in arrays for value in bits_of(array)]
    joined = concat_storage(stored)
    for again in (joined, coded(plain(joined)), to_logical(joined, table_type(dtype))):
        again.validate(full=True)
        assert bits_of(again) == wanted
        assert bits_of(to_storage(again.slice(1, 2))) == wanted[1:3]


def test_arrays_of_any_type_keep_their_values_bit_by_bit(elsewhere: Executor) -> None:
    for seed in range(SEEDS):
        try:
            elsewhere.submit(check_seed, seed).result()
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error


def lists_at(first: int, items: pa.Array, dtype: pa.DataType | None = None) -> pa.Array:
    """No lists at all, whose only offset is not 0."""
    offset = pa.py_buffer(np.array([first], np.int32))
    return pa.Array.from_buffers(dtype or pa.list_(items.type), 0, [None, offset], children=[items])


def no_lists() -> pa.Array:
    return lists_at(2, pa.array([1, 2, 3]))


def lists_of_none() -> pa.Array:
    offsets = pa.py_buffer(np.zeros(3, np.int32))
    inner = no_lists()
    return pa.Array.from_buffers(pa.list_(inner.type), 2, [None, offsets], children=[inner])


def fixed(items: pa.Array, length: int = 2) -> pa.Array:
    return pa.Array.from_buffers(pa.list_(items.type, 0), length, [None], children=[items])


def dictionary(codes: list[int | None], values: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), values)


def sliced_entries() -> pa.Array:
    """Arrow's own `keys` and `items` of this map begin one entry too early."""
    dtype = pa.map_(pa.string(), pa.int64())
    entries = pa.StructArray.from_arrays(
        [pa.array(["a", "b", "c"]), pa.array([1, 2, 3])], fields=[dtype.key_field, dtype.item_field]
    )
    offsets = pa.py_buffer(np.array([0, 1, 2], np.int32))
    return pa.Array.from_buffers(dtype, 2, [None, offsets], children=[entries.slice(1)])


DEADLY: list[Callable[[], pa.Array]] = [
    no_lists,
    lists_of_none,
    sliced_entries,
    lambda: fixed(no_lists()),
    lambda: fixed(pa.array([], pa.string_view())),
    lambda: fixed(dictionary([], pa.array(["a"]))),
    lambda: dictionary([None, None], no_lists()),
    lambda: dictionary([None, None], pa.array(["a", None]).slice(1, 0)),
    lambda: dictionary([0, None], pa.nulls(1)),
    lambda: pa.ListArray.from_arrays([0, 0, 0], pa.array(["a", None], pa.string_view())[1:1]),
    lambda: pa.array([{}, {}], pa.struct([])).slice(1),
]


@pytest.mark.parametrize("place", range(len(DEADLY)))
def test_arrays_that_end_the_process_in_arrow_are_taken_in(elsewhere: Executor, place: int) -> None:
    elsewhere.submit(check_deadly, place).result()


def check_deadly(place: int) -> None:
    array = DEADLY[place]()
    inside = taken_in(array)
    assert bits_of(inside) == bits_of(array)
    for dtype in (inside.type, table_type(inside.type)):
        again = to_logical(concat_storage([to_storage(inside)] * 2), dtype)
        again.validate(full=True)
        assert bits_of(again) == 2 * bits_of(array)


@pytest.mark.parametrize("keys", [pa.array(["a", None]), pa.nulls(2)])
def test_keys_of_a_map_that_are_null_in_their_dictionary_are_refused(
    elsewhere: Executor, keys: pa.Array
) -> None:
    message = elsewhere.submit(refusal_of_keys, keys).result()
    assert message == "column 'v': a map has a key that is null"


def refusal_of_keys(keys: pa.Array) -> str:
    with pytest.raises(ValueError, match="key") as found:
        taken_in(pa.MapArray.from_arrays([0, 2], dictionary([0, 1], keys), pa.array([1, 2])))
    return str(found.value)


@pytest.mark.parametrize("dtype", [pa.float16(), pa.float32(), pa.float64()])
def test_dictionaries_that_differ_by_the_sign_of_zero_alone_stay_apart(dtype: pa.DataType) -> None:
    kind = dtype.to_pandas_dtype()
    parts = [dictionary([0, 1], pa.array(np.array([1, zero], kind))) for zero in (0.0, -0.0)]
    joined = concat_storage([to_storage(part) for part in parts])
    assert bits_of(joined) == bits_of(parts[0]) + bits_of(parts[1])
    assert len(joined.dictionary) == 3


def test_arrays_of_flat_types_and_those_in_form_pass_as_they_are() -> None:
    rows = {
        "number": pa.array([1, None]),
        "text": pa.array(["a", None]),
        "code": pa.array(["a", None]).dictionary_encode(),
        "list": pa.array([[1], None]),
        "struct": pa.array([{"a": "b"}, None]),
    }
    batch = pa.record_batch(rows)
    assert canonical(batch, check_whole) is batch


def test_a_dictionary_that_batches_share_is_kept_as_it_is() -> None:
    values = pa.array(["b", "a", "b"])
    parts = [dictionary([0, 1], values), dictionary([None, 2], values)]
    joined = concat_storage([to_storage(part) for part in parts])
    assert joined.dictionary.equals(values)
    assert joined.indices.to_pylist() == [0, 1, None, 2]
