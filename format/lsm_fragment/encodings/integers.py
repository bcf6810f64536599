"""Encodes integers by bits: looks at a sample, then packs all (SPEC section 5).

Floats are encoded by the integers that they become (`lsm_fragment.native.encodings.floats`). What is packed
gains nothing from a codec. One alternative leaves work to the codec: the same bits for the same value
everywhere, where a sample shows that this takes less.
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
    encode_alike,
    encode_backed_ints,
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
        return encode_backed_ints(values)  # readers refuse that many values without bytes
    if seen.has_runs:
        changes = native.arrays.integers.count_changes(native.as_words(values))
        if not changes:
            return encode_constant(length, int(values[0]))
        if allow_runs and (changes + 1) * MIN_RUN <= length:
            return encode_runs(values, partial(encode_ints, allow_runs=False))
    if (node := encode_alike(values, sample, seen)) is not None:
        return node
    steps_are_less = seen.by_steps < seen.by_values
    differ = seen.by_less < 0.95 * min(seen.by_steps, seen.by_values)
    return pack(values, values_too=differ or not steps_are_less, steps_too=differ or steps_are_less)


def multiples(values: IntArray, sample: IntArray) -> Node | None:
    """Encodes multiples of one number by MULTIPLE; None if they are none."""
    return encode_multiples(values, sample, _encode_quotients)


def _encode_quotients(quotients: IntArray) -> Node:
    sample = sampled(quotients)
    return encode_surveyed(quotients, sample, survey(sample), allow_runs=False)
