"""Encodes storage arrays to chunks: picks a light encoding from the data (SPEC section 5).

The choice looks at small samples, so it is deterministic. `lsm_fragment.encodings.integers` encodes
integers. The idea of cascading light encodings before a general codec is BtrBlocks'.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment import native
from lsm_fragment.arrays.buffers import (
    fixed_width_bytes,
    fixed_width_view,
    float_words,
    int_dtype,
    valid_mask,
)
from lsm_fragment.arrays.moves import list_parts
from lsm_fragment.arrays.sizes import nulls_bytes
from lsm_fragment.arrays.templated import (
    TextSurvey,
    joined,
    survey_texts,
    text,
)
from lsm_fragment.arrays.types import (
    is_binary_like,
    is_list_like,
    is_string,
    is_templated,
    may_stay_coded,
    value_type,
)
from lsm_fragment.encodings.decimal import encode_decimals
from lsm_fragment.encodings.dictionary import (
    encode_by_sampled_dictionary,
    encode_by_small_dictionary,
    encode_dictionary_array,
)
from lsm_fragment.encodings.fixed_list import encode_fixed
from lsm_fragment.encodings.integers import encode_surveyed
from lsm_fragment.encodings.letters import encode_strings
from lsm_fragment.encodings.list import encode_lists
from lsm_fragment.encodings.multiple import encode_multiples
from lsm_fragment.encodings.node import (
    Encoding,
    Node,
    under_nulls,
    with_nulls_filled,
    with_validity,
)
from lsm_fragment.encodings.packed import encode_backed_ints, sampled, survey
from lsm_fragment.encodings.plain import encode_bool, encode_plain, encode_wide, plain_is_dense
from lsm_fragment.encodings.template import encode_by_templates, encode_templated
from lsm_fragment.encodings.varlen import encode_varlen

_WIDE_BITS: Final = 4
"""Packed bits of a value from which other encodings of numbers than by bits are tried."""


def encode_root(array: pa.Array, *, is_decided: bool, seen: TextSurvey | None) -> Node:
    """Encodes an array, possibly a templated one, or strings that may become so."""
    if array.null_count == len(array):
        return encode(array)
    if is_templated(array.type):
        seen = seen or survey_texts(array)
        return encode_templated(array, seen.alphabets, seen.text_bytes) or encode_strings(
            joined(array)
        )
    if is_string(array.type):
        coded = None if is_decided else encode_by_sampled_dictionary(array)
        return coded or encode_by_templates(array) or encode_strings(array)
    return encode(array, is_decided=is_decided)


def encode(array: pa.Array, *, is_decided: bool = False) -> Node:
    length, dtype = len(array), array.type
    if array.null_count == length:
        stored = value_type(dtype)
        return Node(Encoding.NULL, length, length, known_bytes=nulls_bytes(length, stored))
    if pt.is_dictionary(dtype):
        return encode_dictionary_array(array, is_distinct=is_decided)
    if is_binary_like(dtype):
        coded = None if is_decided else encode_by_sampled_dictionary(array)
        return coded or encode_strings(array)
    if is_decided and may_stay_coded(dtype):
        return encode_undivided(array)
    if pt.is_boolean(dtype):
        return encode_bool(array)
    if fixed_width_bytes(dtype) is not None:
        return encode_fixed_width(array)
    return _encode_nested(array)


# --- fixed width ----------------------------------------------------------------------------


def encode_fixed_width(array: pa.Array) -> Node:
    words, valid = _words(array), valid_mask(array)
    if words is None:
        return encode_by_sampled_dictionary(array) or encode_wide(array)
    if valid is not None:
        words = with_nulls_filled(words, valid)
    sample = _as_integers(sampled(words), array.type)
    seen = survey(sample)
    is_wide = not seen.has_runs and seen.bits > _WIDE_BITS
    if is_wide:
        if (node := encode_decimals(words, array.type, seen)) is not None:
            return under_nulls(node, valid)
        if (node := encode_by_small_dictionary(array, seen)) is not None:
            return node
    integers = _as_integers(words, array.type)
    if is_wide:
        if (node := encode_multiples(integers, sample)) is not None:
            return under_nulls(node, valid)
        if (is_dense := plain_is_dense(array, sample, seen)) is not None:
            return encode_plain(array, is_dense=is_dense)
    return under_nulls(encode_surveyed(integers, sample, seen), valid)


def _words(array: pa.Array) -> npt.NDArray[Any] | None:
    """Returns integers, or the patterns of floats (anything in null places); None if the type or the values
    are wider."""
    dtype = int_dtype(array.type)
    if dtype is not None:
        return fixed_width_view(array, dtype)
    if (words := float_words(array.type)) is not None:
        return fixed_width_view(array, words)
    if pt.is_decimal128(array.type):
        halves = fixed_width_view(array, np.dtype((np.int64, 2))).reshape(-1, 2)
        fits = halves[:, 1] == halves[:, 0] >> 63
        valid = valid_mask(array)
        if bool(np.all(fits if valid is None else fits | ~valid)):
            return np.ascontiguousarray(halves[:, 0])
    return None


def _as_integers(words: npt.NDArray[Any], dtype: pa.DataType) -> npt.NDArray[Any]:
    """Returns the integers that words are or, of floats, stand for."""
    if not pt.is_floating(dtype):
        return words
    ordered = np.empty_like(words)
    native.encodings.floats.order(words, ordered)
    return ordered.view(f"i{words.itemsize}")


# --- dictionaries ---------------------------------------------------------------------------


def encode_undivided(values: pa.Array) -> Node:
    """Encodes values without a dictionary."""
    if is_binary_like(values.type):
        return encode_strings(values)
    if is_list_like(values.type) or pt.is_map(values.type):
        return encode_lists(values)
    return encode_plain(values)


# --- templates ------------------------------------------------------------------------------


# --- strings and nested ---------------------------------------------------------------------


def _encode_nested(array: pa.Array) -> Node:
    if is_list_like(array.type) or pt.is_map(array.type):
        return encode_by_sampled_dictionary(array) or encode_lists(array)
    return encode_fixed(array, encode)


# --- bytes for every value ------------------------------------------------------------------


def encode_backed(array: pa.Array) -> Node:
    """Encodes without constants, runs, nulls and dictionaries, which may decode to far more than they take.

    Only values of type null, which have no other encoding, take no bytes.
    """
    array = text(array)
    dtype, length = array.type, len(array)
    if pt.is_null(dtype):
        return encode(array)
    if is_binary_like(dtype):
        return encode_varlen(array, encode_backed_ints)
    if pt.is_boolean(dtype):
        return encode_bool(array)
    if fixed_width_bytes(dtype) is not None:
        return encode_plain(array)
    if is_list_like(dtype) or pt.is_map(dtype):
        counts, items = list_parts(array)
        children = (encode_backed_ints(counts), encode_backed(items))
        return with_validity(Encoding.LIST, length, valid_mask(array), [], children=children)
    return encode_fixed(array, encode_backed)
