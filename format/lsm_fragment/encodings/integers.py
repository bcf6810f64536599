"""Encodes integers: surveys a sample, then packs all by bits (SPEC section 5).

Floats are encoded as the integers that `lsm_fragment.native.encodings.floats` maps them to. A codec does not
shrink packed integers. Uniform packing is the exception: equal values then have equal bytes everywhere, and
it is used where a sample shows that a codec saves more than packing by blocks.
"""

from __future__ import annotations

from functools import partial

from lsm_fragment import native
from lsm_fragment.encodings.constant import encode_constant
from lsm_fragment.encodings.multiple import encode_multiples
from lsm_fragment.encodings.node import MAX_UNBACKED_VALUES, IntArray, Node
from lsm_fragment.encodings.packed import (
    BYTE_BITS,
    MIN_RUN,
    Survey,
    encode_backed_ints,
    encode_uniform,
    pack,
    sampled,
    survey,
)
from lsm_fragment.encodings.run_length import encode_runs


def encode_ints(values: IntArray, *, allow_runs: bool = True) -> Node:
    """Encodes integers of any numpy integer type by CONSTANT, RUN_LENGTH, MULTIPLE or PACKED."""
    sample = sampled(values)
    seen = survey(sample)
    node = None if seen.has_runs or seen.bits <= BYTE_BITS else multiples(values, sample)
    return node or encode_surveyed(values, sample, seen, allow_runs=allow_runs)


def encode_surveyed(
    values: IntArray, sample: IntArray, seen: Survey, *, allow_runs: bool = True
) -> Node:
    """Encodes integers whose sample was surveyed, by CONSTANT, RUN_LENGTH or PACKED."""
    length = len(values)
    if length == 0:
        return encode_constant(0)
    if length > MAX_UNBACKED_VALUES:
        return encode_backed_ints(values)  # readers refuse more values without bytes
    if seen.has_runs:
        changes = native.arrays.integers.count_changes(native.as_words(values))
        if not changes:
            return encode_constant(length, int(values[0]))
        if allow_runs and (changes + 1) * MIN_RUN <= length:
            return encode_runs(values, partial(encode_ints, allow_runs=False))
    if (node := encode_uniform(values, sample, seen)) is not None:
        return node
    deltas_are_smaller = seen.by_deltas < seen.by_values
    differ = seen.by_smaller < 0.95 * min(seen.by_deltas, seen.by_values)
    return pack(
        values,
        with_values=differ or not deltas_are_smaller,
        with_deltas=differ or deltas_are_smaller,
    )


def multiples(values: IntArray, sample: IntArray) -> Node | None:
    """Encodes multiples of one number by MULTIPLE; None if there is no common factor."""
    return encode_multiples(values, sample, _encode_quotients)


def _encode_quotients(quotients: IntArray) -> Node:
    sample = sampled(quotients)
    return encode_surveyed(quotients, sample, survey(sample), allow_runs=False)
