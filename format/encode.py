"""Encodes storage arrays to chunks: picks a light encoding from the data (SPEC section 5).

The choice looks at whole-chunk minima, maxima and counts, and at small samples compressed both ways,
so it is deterministic. The idea of cascading light encodings before a general codec is BtrBlocks'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from format import native
from format.compression import compress
from format.hashing import value_hashes
from format.nested import fixed_items, list_parts
from format.nodes import (
    MAX_EXACT,
    MAX_UNBACKED_VALUES,
    Encoding,
    Node,
    binary_parts,
    dictionary_codes,
    fixed_width_bytes,
    fixed_width_view,
    int_dtype,
    join_buffers,
    pack_bits,
    pack_nibbles,
    pack_nodes,
    powers_of_ten,
    split_planes,
    unsigned_dtype,
    valid_mask,
)
from format.sizes import nulls_bytes
from format.storage import decoded
from format.types import is_binary_like, is_list_like, may_stay_coded

_MOST_VALUE_BYTES: Final = 24
"""Bytes that a reader charges for a value beside its data: an integer, and 16 bytes of a decimal made of
it."""
_SAMPLE_VALUES: Final = 2048
_STRETCHES: Final = 4
_STRETCH_VALUES: Final = 1024
_WIDE: Final = 2
"""Width in bytes from which integers are tested for steps that compress better."""
_SAMPLE_SLACK: Final = 1.5
"""A sample may have this many times the share of distinct values that a dictionary may have."""
_MIN_RUN: Final = 16
"""Average run length from which run lengths compress better than zstd does the repeats."""
_MIN_SAMPLED_RUN: Final = 4
"""Average run length in a sample below which runs are not looked for."""
_MAX_SPLIT_WIDTH: Final = 16
_MAX_DIGITS: Final = 9
"""The most digits after the point that are looked for."""
_MAX_DECIMAL_WIDTH: Final = 4
"""The most bytes of an integer that replaces a double."""
_DISTINCT_SHARE: Final = 3
"""A dictionary pays if there are at least this many values to each distinct one."""
_DISTINCT_LISTS_SHARE: Final = 2
"""The same for lists, which take more room and more work."""


@dataclass(frozen=True, slots=True)
class EncodedArray:
    """A chunk before compression."""

    encoding: Encoding
    meta: bytes
    raw: memoryview
    decoded_bytes: int
    """The most bytes that decoding takes, without the values that dictionaries stand for."""
    values: int
    """Values of all nodes together."""
    dictionaries: int
    """Number of dictionary nodes."""


def encode_array(
    array: pa.Array, *, is_decided: bool = False, is_backed: bool = False
) -> EncodedArray:
    """Encodes an array.

    array: a storage array, or a dictionary-coded one whose dictionary has exactly the used values, in the
    order of use. is_decided: see `make_chunk`. is_backed: avoids every encoding in which values take no
    bytes; then `array` must not be dictionary-coded.
    """
    root = _encode_backed(array) if is_backed else _encode(array, is_decided=is_decided)
    nodes = list(root.walk())
    return EncodedArray(
        root.encoding,
        pack_nodes(root),
        join_buffers(root),
        sum(map(_most_decoded_bytes, nodes)),
        sum(node.length for node in nodes),
        sum(node.encoding is Encoding.DICTIONARY for node in nodes),
    )


def _most_decoded_bytes(node: Node) -> int:
    """Returns the bytes that `format.decode` charges: integers as 64 bits, and once more when they are
    wrapped."""
    planes = sum(memoryview(buffer).nbytes for buffer in node.buffers) if node.is_split else 0
    return node.null_bytes or _MOST_VALUE_BYTES * node.length + planes


def _encode(array: pa.Array, *, is_decided: bool = False) -> Node:
    length, dtype = len(array), array.type
    if array.null_count == length:
        stored = dtype.value_type if pt.is_dictionary(dtype) else dtype
        return Node(Encoding.NULL, length, length, null_bytes=nulls_bytes(length, stored))
    if pt.is_dictionary(dtype):
        return _encode_dictionary_array(array, is_distinct=is_decided)
    if is_decided and may_stay_coded(dtype):
        return _encode_undivided(array)
    if is_binary_like(dtype):
        return _encode_by_sampled_dictionary(array) or _encode_varlen(array)
    if pt.is_boolean(dtype):
        return _encode_bool(array)
    if fixed_width_bytes(dtype) is not None:
        return _encode_fixed_width(array)
    return _encode_nested(array)


# --- integers -------------------------------------------------------------------------------


def encode_ints(values: npt.NDArray[Any], *, allow_runs: bool = True) -> Node:
    """Encodes non-null integers of any numpy integer type by FOR, DELTA or RUN_LENGTH."""
    length = len(values)
    if length == 0:
        return Node(Encoding.FOR, 0)
    found = _int_statistics(values)
    low = found.low
    width = _width_of(found.high - low)
    if width == 0 and length <= MAX_UNBACKED_VALUES:
        return Node(Encoding.FOR, length, param=low)
    if length > MAX_UNBACKED_VALUES:  # readers refuse that many values without bytes
        return _encode_for(values, low, max(width, 1))
    if width < _WIDE and _is_scattered(values, width):
        return _encode_for(values, low, width)
    if allow_runs and (found.changes + 1) * _MIN_RUN <= length:
        return _encode_runs(values)
    step_low = found.low_step
    step_width = _width_of(found.high_step - step_low)
    is_close = step_width == width >= _WIDE and _steps_pay(values, low, step_low, width)
    if step_width < width or is_close:
        child = _encode_for(_steps(values), step_low, step_width)
        first = int(values[0].astype(np.uint64))
        return Node(Encoding.DELTA, length, param=first, children=(child,))
    return _encode_for(values, low, width)


class _IntStatistics(NamedTuple):
    low: int
    high: int
    low_step: int
    high_step: int
    """The greatest step modulo 2^64, as a signed integer."""
    changes: int


def _int_statistics(values: npt.NDArray[Any]) -> _IntStatistics:
    return _IntStatistics(*native.integers.statistics(values))


def _steps(values: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Returns the steps between neighbours, modulo 2^64."""
    wide = values.astype(np.uint64)
    return wide[1:] - wide[:-1]


def _steps_pay(values: npt.NDArray[Any], low: int, step_low: int, width: int) -> bool:
    """Returns whether a sample of the steps compresses better than one of the values, although a few large
    steps make the steps as wide: timestamps in stretches."""
    dtype = unsigned_dtype(width)
    of_values = _best_bytes(_minus(_sampled(values), low).astype(dtype), width)
    of_steps = _best_bytes(_minus(_sampled_steps(values), step_low).astype(dtype), width)
    return of_steps * 20 < of_values * 19


def _minus(values: npt.NDArray[Any], base: int) -> npt.NDArray[np.uint64]:
    return values.astype(np.uint64) - np.uint64(base & (2**64 - 1))


def _is_scattered(values: npt.NDArray[Any], width: int) -> bool:
    """Returns whether a sample rules out both that steps take fewer bytes than values and that runs are
    long."""
    start = (len(values) - min(len(values), _SAMPLE_VALUES)) // 2
    steps = np.diff(values[start : start + _SAMPLE_VALUES].astype(np.uint64)).view(np.int64)
    if len(steps) == 0:
        return False
    is_wide = _width_of(int(steps.max()) - int(steps.min())) >= width
    return is_wide and int(np.count_nonzero(steps)) * _MIN_SAMPLED_RUN > len(steps)


def _encode_runs(values: npt.NDArray[Any]) -> Node:
    changes = np.flatnonzero(values[1:] != values[:-1])
    starts = np.concatenate(([0], changes + 1))
    lengths = np.diff(np.append(starts, len(values)))
    children = (
        encode_ints(lengths, allow_runs=False),
        encode_ints(values[starts], allow_runs=False),
    )
    return Node(Encoding.RUN_LENGTH, len(values), children=children)


def _encode_for(
    values: npt.NDArray[Any],
    base: int,
    width: int,
    valid: npt.NDArray[np.bool_] | None = None,
    *,
    may_pack: bool = True,
) -> Node:
    """Encodes integers by FOR.

    values: all valid ones lie within `width` bytes above `base`, modulo 2^64. may_pack: allows two in a byte.
    """
    nulls = 0 if valid is None else len(valid) - int(np.count_nonzero(valid))
    buffers: list[Any] = [] if valid is None else [pack_bits(valid)]
    split = nibbles = False
    if width:
        stored = _narrowed(values, base, width)
        if valid is not None:
            stored[~valid] = 0
        split = width > 1 and _planes_pay(stored, width)
        nibbles = may_pack and width == 1 and _nibbles_pay(stored)
        if split:
            buffers.append(split_planes(stored, width))
        else:
            buffers.append(pack_nibbles(stored) if nibbles else stored)
    return Node(
        Encoding.FOR,
        len(values),
        nulls,
        width,
        base,
        valid is not None,
        split,
        nibbles,
        tuple(buffers),
    )


def _narrowed(values: npt.NDArray[Any], base: int, width: int) -> npt.NDArray[Any]:
    """Returns the differences to `base`, modulo 2^64, in `width` bytes each."""
    out = np.empty(len(values), dtype=unsigned_dtype(width))
    native.integers.narrow(values, base & (2**64 - 1), out)
    return out


def _width_of(span: int) -> int:
    """Returns the bytes (0, 1, 2, 4 or 8) that hold every integer in [0, span]."""
    if span == 0:
        return 0
    return next(width for width in (1, 2, 4, 8) if span < 1 << (8 * width))


def _planes_pay(stored: npt.NDArray[Any], width: int) -> bool:
    """Returns whether a sample compresses better in byte planes."""
    sample = _sampled(stored.reshape(-1).view(np.uint8).reshape(-1, width))
    plain, planes = _both_bytes(sample, width)
    return planes * 20 < plain * 19


def _nibbles_pay(stored: npt.NDArray[np.uint8]) -> bool:
    """Returns whether values are below 16 and a sample compresses better with two in a byte."""
    if int(stored.max()) > 15:
        return False
    sample = _sampled(stored)
    _, plain = compress(sample.tobytes(), 1)
    _, packed = compress(pack_nibbles(sample).tobytes(), 1)
    return len(packed) * 20 < len(plain) * 19


def _best_bytes(sample: npt.NDArray[Any], width: int) -> int:
    return min(_both_bytes(sample, width))


def _both_bytes(sample: npt.NDArray[Any], width: int) -> tuple[int, int]:
    """Returns the compressed bytes of a sample as it is, and in byte planes."""
    flat = sample.reshape(-1).view(np.uint8)
    _, plain = compress(flat.tobytes(), 1)
    _, planes = compress(split_planes(flat, width).tobytes(), 1)
    return len(plain), len(planes)


def _sampled_steps(values: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Returns a sample of the steps between the values, as `_sampled` takes it."""
    steps = len(values) - 1
    if steps <= _SAMPLE_VALUES:
        return _steps(values)
    step = (steps - _STRETCH_VALUES) // (_STRETCHES - 1)
    starts = range(0, step * _STRETCHES, step)
    return np.concatenate([_steps(values[at : at + _STRETCH_VALUES + 1]) for at in starts])


def _sampled(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns some stretches of the values, in their order."""
    if len(values) <= _SAMPLE_VALUES:
        return values
    step = (len(values) - _STRETCH_VALUES) // (_STRETCHES - 1)
    starts = range(0, step * _STRETCHES, step)
    return np.concatenate([values[start : start + _STRETCH_VALUES] for start in starts])


# --- fixed width ----------------------------------------------------------------------------


def _encode_fixed_width(array: pa.Array) -> Node:
    integers = _int_patterns(array)
    if integers is None:
        return (
            _encode_decimals(array) or _encode_by_sampled_dictionary(array) or _encode_plain(array)
        )
    valid = valid_mask(array)
    if valid is None:
        node = encode_ints(integers)
        if node.encoding is not Encoding.FOR or node.width < 2:
            return node
        return _encode_by_sampled_dictionary(array) or node
    present = integers[valid]
    low, span = int(present.min()), int(present.max()) - int(present.min())
    width = _width_of(span)
    if width >= 2 and (node_or_none := _encode_by_sampled_dictionary(array)) is not None:
        return node_or_none
    return _encode_for(integers, low, width, valid)


def _int_patterns(array: pa.Array) -> npt.NDArray[Any] | None:
    """Returns integer values (anything in null places), or None if the type or the values are wider."""
    dtype = int_dtype(array.type)
    if dtype is not None:
        return fixed_width_view(array, dtype)
    if pt.is_decimal128(array.type):
        words = fixed_width_view(array, np.dtype((np.int64, 2))).reshape(-1, 2)
        fits = words[:, 1] == words[:, 0] >> 63
        valid = valid_mask(array)
        if bool(np.all(fits if valid is None else fits[valid])):
            return np.ascontiguousarray(words[:, 0])
    return None


def _encode_plain(array: pa.Array) -> Node:
    width = fixed_width_bytes(array.type)
    assert width is not None
    valid = valid_mask(array)
    if width == 0:
        return _with_validity(Encoding.PLAIN, len(array), valid, [np.empty(0, np.uint8)])
    data = fixed_width_view(array, np.dtype((np.uint8, width))).reshape(len(array), width)
    if valid is not None:
        data = np.where(valid[:, None], data, np.uint8(0))
    data = np.ascontiguousarray(data)
    split = 1 < width <= _MAX_SPLIT_WIDTH and _planes_pay(data, width)
    flat = split_planes(data, width) if split else data.reshape(-1)
    return _with_validity(Encoding.PLAIN, len(array), valid, [flat], param=width, split=split)


def _encode_decimals(array: pa.Array) -> Node | None:
    """Encodes doubles that are decimals of few digits as integers; None if any is not (the idea is ALP's)."""
    if not pt.is_float64(array.type):
        return None
    valid = valid_mask(array)
    values = fixed_width_view(array, np.float64)
    if valid is not None:
        values = np.where(valid, values, 0.0)
    start = (len(values) - min(len(values), _SAMPLE_VALUES)) // 2
    sample = values[start : start + _SAMPLE_VALUES]
    for exponent in range(_MAX_DIGITS + 1):
        if _decimal_integers(sample, exponent) is not None:
            integers = _decimal_integers(values, exponent)
            if integers is None:
                continue
            if _width_of(int(integers.max()) - int(integers.min())) > _MAX_DECIMAL_WIDTH:
                return None
            children = (encode_ints(integers),)
            return _with_validity(
                Encoding.DECIMAL, len(array), valid, [], param=exponent, children=children
            )
    return None


def _decimal_integers(
    values: npt.NDArray[np.float64], exponent: int
) -> npt.NDArray[np.int64] | None:
    """Returns integers whose quotients by the power of ten equal the values to the bit; None if there are no
    such integers."""
    with np.errstate(all="ignore"):
        scaled = np.rint(values * powers_of_ten(exponent))
        if not (np.abs(scaled) <= MAX_EXACT).all():  # False for NaN too
            return None
    integers = scaled.astype(np.int64)
    quotients = integers / powers_of_ten(exponent)
    same = np.array_equal(quotients.view(np.uint64), np.ascontiguousarray(values).view(np.uint64))
    return integers if same else None


def _encode_bool(array: pa.Array) -> Node:
    valid = valid_mask(array)
    values = array.fill_null(False) if valid is not None else array
    bits = pack_bits(values.to_numpy(zero_copy_only=False))
    return _with_validity(Encoding.PLAIN, len(array), valid, [bits])


def _with_validity(
    encoding: Encoding,
    length: int,
    valid: npt.NDArray[np.bool_] | None,
    buffers: list[Any],
    *,
    param: int = 0,
    split: bool = False,
    children: tuple[Node, ...] = (),
) -> Node:
    nulls = 0 if valid is None else length - int(np.count_nonzero(valid))
    if valid is not None:
        buffers = [pack_bits(valid), *buffers]
    return Node(
        encoding,
        length,
        nulls,
        param=param,
        has_validity=valid is not None,
        is_split=split,
        buffers=tuple(buffers),
        children=children,
    )


# --- dictionaries ---------------------------------------------------------------------------


def by_dictionary(array: pa.Array) -> pa.Array:
    """Dictionary-codes an array, values in order of use, if they repeat enough; otherwise returns it as it
    is.

    Applies to strings, binaries, lists and maps; for other types `encode_array` decides by itself.
    """
    if may_stay_coded(array.type):
        return _by_sampled_dictionary(array) or array
    return array


def _encode_by_sampled_dictionary(array: pa.Array) -> Node | None:
    coded = _by_sampled_dictionary(array)
    return None if coded is None else _encode_coded(coded)


def _by_sampled_dictionary(array: pa.Array) -> pa.Array | None:
    """Dictionary-codes an array if its values repeat enough, else None.

    Samples before it hashes everything.
    """
    present = len(array) - array.null_count
    if present < 2:
        return None
    is_list = pt.is_nested(array.type)
    share = _DISTINCT_LISTS_SHARE if is_list else _DISTINCT_SHARE
    sample = _middle(array)
    distinct = len(np.unique(value_hashes(sample)))
    # The share of distinct values falls as their number grows.
    if distinct * share > len(sample) * _SAMPLE_SLACK and len(sample) < len(array):
        return None
    coded = _coded_lists(array) if is_list else _coded_values(array)
    if coded is None or len(coded.dictionary) * share > present:
        return None
    return coded


def _coded_values(array: pa.Array) -> pa.Array | None:
    if pt.is_decimal(array.type) and array.type.bit_width <= 64:
        return None  # Arrow cannot hash these decimals; FOR packs them anyway
    if is_binary_like(array.type):
        return _coded_strings(array)
    return array.dictionary_encode()


def _coded_strings(array: pa.Array) -> pa.Array | None:
    """Dictionary-codes strings; gives up once there are too many distinct values."""
    rows, valid = len(array), valid_mask(array)
    offsets, data = binary_parts(array)
    codes = np.empty(rows, dtype=np.int32)
    firsts = np.empty(rows, dtype=np.int32)
    count = native.strings.code_strings(
        offsets,
        native.as_bytes(data),
        native.as_flags(valid),
        (rows - array.null_count) // _DISTINCT_SHARE,
        codes,
        firsts,
    )
    if count < 0:
        return None
    return pa.DictionaryArray.from_arrays(
        pa.array(codes, mask=None if valid is None else ~valid),
        array.take(pa.array(firsts[:count])),
        safe=False,
    )


def _coded_lists(array: pa.Array) -> pa.Array | None:
    """Dictionary-codes lists and maps, which Arrow does not hash, by the row hash; then compares the
    values."""
    valid = valid_mask(array)
    hashes = pa.array(value_hashes(array), mask=None if valid is None else ~valid)
    encoded = hashes.dictionary_encode()
    codes = dictionary_codes(encoded)
    rows = np.arange(len(array))
    first = np.empty(len(encoded.dictionary), dtype=np.int64)
    keep = slice(None) if valid is None else valid
    first[codes[keep][::-1]] = rows[keep][::-1]
    values = array.take(pa.array(first))
    if not values.take(encoded.indices).equals(array):  # two values have the same hash
        return None
    return pa.DictionaryArray.from_arrays(encoded.indices, values, safe=False)


def _middle(array: pa.Array) -> pa.Array:
    return array.slice((len(array) - min(len(array), _SAMPLE_VALUES)) // 2, _SAMPLE_VALUES)


def _encode_dictionary_array(array: pa.Array, *, is_distinct: bool) -> Node:
    present = len(array) - array.null_count
    is_distinct = is_distinct or _is_distinct(array.dictionary)
    share = _DISTINCT_LISTS_SHARE if pt.is_nested(array.dictionary.type) else _DISTINCT_SHARE
    if not is_distinct or len(array.dictionary) * share > present:
        values = decoded(array)
        is_fixed = fixed_width_bytes(values.type) is not None
        return _encode_fixed_width(values) if is_fixed else _encode_undivided(values)
    return _encode_coded(array)


def _is_distinct(values: pa.Array) -> bool:
    """Returns whether values are distinct. A collision of hashes gives False, and costs only a dictionary."""
    hashes = value_hashes(values)
    return values.null_count == 0 and len(np.unique(hashes)) == len(values)


def _encode_coded(array: pa.Array) -> Node:
    """Makes a DICTIONARY node of a dictionary-coded array whose values are distinct and all used."""
    valid, codes = valid_mask(array), dictionary_codes(array)
    if valid is not None:
        codes = np.where(valid, codes, 0)
    children = (encode_ints(codes), _encode_undivided(array.dictionary))
    return _with_validity(Encoding.DICTIONARY, len(array), valid, [], children=children)


def _encode_undivided(values: pa.Array) -> Node:
    """Encodes values without a dictionary."""
    if is_binary_like(values.type):
        return _encode_varlen(values)
    if is_list_like(values.type) or pt.is_map(values.type):
        return _encode_lists(values)
    return _encode_plain(values)


# --- strings and nested ---------------------------------------------------------------------


def _encode_varlen(array: pa.Array, ints: Callable[[npt.NDArray[Any]], Node] = encode_ints) -> Node:
    valid = valid_mask(array)
    if valid is not None:
        # Arrow allows bytes under a null; the format does not.
        array = pc.fill_null(array, pa.scalar(b"", pa.binary()).cast(array.type))
    offsets, data = binary_parts(array)
    start, stop = int(offsets[0]), int(offsets[-1])
    lengths = ints(np.diff(offsets))
    return _with_validity(
        Encoding.VARLEN,
        len(array),
        valid,
        [data[start:stop]],
        param=stop - start,
        children=(lengths,),
    )


def _encode_nested(array: pa.Array) -> Node:
    if is_list_like(array.type) or pt.is_map(array.type):
        return _encode_by_sampled_dictionary(array) or _encode_lists(array)
    return _encode_fixed(array, _encode)


def _encode_fixed(array: pa.Array, child: Callable[[pa.Array], Node]) -> Node:
    """Encodes structs and lists of fixed size."""
    dtype, length, valid = array.type, len(array), valid_mask(array)
    if pt.is_fixed_size_list(dtype):
        items = child(fixed_items(array))
        return _with_validity(Encoding.FIXED_LIST, length, valid, [], children=(items,))
    if pt.is_struct(dtype):
        # flatten() pushes the struct's nulls into its fields, which normalises the values under them.
        children = tuple(child(part) for part in array.flatten())
        return _with_validity(Encoding.STRUCT, length, valid, [], children=children)
    raise AssertionError(f"not a storage type: {dtype}")


def _encode_lists(array: pa.Array) -> Node:
    counts, items = list_parts(array)
    children = (encode_ints(counts), _encode(items))
    return _with_validity(Encoding.LIST, len(array), valid_mask(array), [], children=children)


# --- bytes for every value ------------------------------------------------------------------


def _encode_backed(array: pa.Array) -> Node:
    """Encodes without constants, runs, nulls and dictionaries, which may decode to far more than they take.

    Only values of type null, which have no other encoding, take no bytes.
    """
    dtype, length = array.type, len(array)
    if pt.is_null(dtype):
        return _encode(array)
    if is_binary_like(dtype):
        return _encode_varlen(array, _encode_backed_ints)
    if pt.is_boolean(dtype):
        return _encode_bool(array)
    if fixed_width_bytes(dtype) is not None:
        return _encode_plain(array)
    if is_list_like(dtype) or pt.is_map(dtype):
        counts, items = list_parts(array)
        children = (_encode_backed_ints(counts), _encode_backed(items))
        return _with_validity(Encoding.LIST, length, valid_mask(array), [], children=children)
    return _encode_fixed(array, _encode_backed)


def _encode_backed_ints(values: npt.NDArray[Any]) -> Node:
    if len(values) == 0:
        return Node(Encoding.FOR, 0)
    low = int(values.min())
    width = max(1, _width_of(int(values.max()) - low))
    return _encode_for(values, low, width, may_pack=False)
