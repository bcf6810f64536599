"""Encodes storage arrays to chunks: picks a light encoding from the data (SPEC section 5).

The choice depends on small samples only, so it is deterministic. `lsm_fragment.encodings.integers` encodes
integers. Cascading light encodings before a general codec is the idea of BtrBlocks.
"""

from __future__ import annotations

from collections.abc import Callable
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
from lsm_fragment.arrays.storage import decoded
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
)
from lsm_fragment.arrays.worded import Words
from lsm_fragment.encodings.decimal import encode_decimals
from lsm_fragment.encodings.dictionary import (
    encode_by_sampled_dictionary,
    encode_by_small_dictionary,
    encode_coded,
    is_worth_its_dictionary,
)
from lsm_fragment.encodings.fixed_list import encode_fixed_lists
from lsm_fragment.encodings.integers import encode_ints, encode_surveyed, multiples
from lsm_fragment.encodings.letters import encode_strings
from lsm_fragment.encodings.list import encode_lists
from lsm_fragment.encodings.node import (
    Encoding,
    Node,
    under_nulls,
    with_nulls_filled,
)
from lsm_fragment.encodings.null import encode_nulls
from lsm_fragment.encodings.packed import encode_backed_ints, sampled, survey
from lsm_fragment.encodings.plain import encode_bool, encode_plain, encode_wide, plain_is_dense
from lsm_fragment.encodings.struct import encode_structs
from lsm_fragment.encodings.template import Precedent, encode_by_templates, encode_templated
from lsm_fragment.encodings.varlen import encode_varlen

_WIDE_BITS: Final = 4
"""Try other integer encodings once bit-packing needs more than this many bits per value."""


def encode_root(
    array: pa.Array,
    *,
    is_decided: bool,
    seen: TextSurvey | None,
    words: Words | None,
    precedent: Precedent | None,
) -> Node:
    """Encodes a plain array, a templated one, or strings that may become templates. words: those of strings,
    if they are known."""
    if array.null_count == len(array):
        return encode(array)
    if is_templated(array.type):
        seen = seen or survey_texts(array)
        return encode_templated(array, seen.alphabets, seen.text_bytes) or encode_strings(
            joined(array)
        )
    if is_string(array.type):
        coded = None if is_decided else encode_by_sampled_dictionary(array, encode_undivided)
        return (
            coded
            or encode_by_templates(array, precedent, words)
            or _encode_text(array, precedent, words)
        )
    return encode(array, is_decided=is_decided)


def _encode_text(array: pa.Array, precedent: Precedent | None, words: Words | None) -> Node:
    """Encodes strings without templates, as those of the column's chunks before."""
    if precedent is None:
        return encode_strings(array, words=words)
    node = encode_strings(array, by_vocabulary=precedent.by_vocabulary, words=words)
    precedent.note_text(array, by_vocabulary=node.encoding is Encoding.VOCABULARY)
    return node


def encode(array: pa.Array, *, is_decided: bool = False) -> Node:
    dtype = array.type
    if array.null_count == len(array):
        return encode_nulls(array)
    if pt.is_dictionary(dtype):
        return _encode_dictionary_array(array, is_distinct=is_decided)
    if is_binary_like(dtype):
        coded = None if is_decided else encode_by_sampled_dictionary(array, encode_undivided)
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
        return encode_by_sampled_dictionary(array, encode_undivided) or encode_wide(array)
    if valid is not None:
        words = with_nulls_filled(words, valid)
    sample = _as_integers(sampled(words), array.type)
    seen = survey(sample)
    is_wide = not seen.has_runs and seen.bits > _WIDE_BITS
    if is_wide:
        if (node := encode_decimals(words, array.type, seen)) is not None:
            return under_nulls(node, valid)
        if (node := encode_by_small_dictionary(array, seen, encode_undivided)) is not None:
            return node
    integers = _as_integers(words, array.type)
    if is_wide:
        if (node := multiples(integers, sample)) is not None:
            return under_nulls(node, valid)
        if (is_dense := plain_is_dense(array, sample, seen)) is not None:
            return encode_plain(array, is_dense=is_dense)
    return under_nulls(encode_surveyed(integers, sample, seen), valid)


def _words(array: pa.Array) -> npt.NDArray[Any] | None:
    """Returns integers, or the bit patterns of floats (null places hold anything); None for other types and
    for decimals beyond 64 bits."""
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
    """Maps float patterns to integers of the same order; returns integers as they are."""
    if not pt.is_floating(dtype):
        return words
    ordered = np.empty_like(words)
    native.encodings.floats.order(words, ordered)
    return ordered.view(f"i{words.itemsize}")


# --- dictionaries ---------------------------------------------------------------------------


def _encode_dictionary_array(array: pa.Array, *, is_distinct: bool) -> Node:
    array, is_worth_it = is_worth_its_dictionary(array, is_distinct=is_distinct)
    if is_worth_it:
        return encode_coded(array, encode_undivided)
    values = decoded(array)
    is_fixed = fixed_width_bytes(values.type) is not None
    return encode_fixed_width(values) if is_fixed else encode_undivided(values)


def encode_undivided(values: pa.Array) -> Node:
    """Encodes values without a dictionary."""
    if is_binary_like(values.type):
        return encode_strings(values)
    if is_list_like(values.type) or pt.is_map(values.type):
        return encode_lists(values, encode_ints, encode)
    return encode_plain(values)


# --- strings and nested ---------------------------------------------------------------------


def _encode_nested(array: pa.Array) -> Node:
    if is_list_like(array.type) or pt.is_map(array.type):
        return encode_by_sampled_dictionary(array, encode_undivided) or encode_undivided(array)
    return _encode_fixed(array, encode)


# --- bytes for every value ------------------------------------------------------------------


def encode_backed(array: pa.Array) -> Node:
    """Encodes so that every value takes bytes: without constants, runs, nulls and dictionaries.

    Only values of type null, which have no other encoding, still take none.
    """
    array = text(array)
    dtype = array.type
    if pt.is_null(dtype):
        return encode_nulls(array)
    if is_binary_like(dtype):
        return encode_varlen(array, encode_backed_ints)
    if pt.is_boolean(dtype):
        return encode_bool(array)
    if fixed_width_bytes(dtype) is not None:
        return encode_plain(array)
    if is_list_like(dtype) or pt.is_map(dtype):
        return encode_lists(array, encode_backed_ints, encode_backed)
    return _encode_fixed(array, encode_backed)


def _encode_fixed(array: pa.Array, child: Callable[[pa.Array], Node]) -> Node:
    if pt.is_fixed_size_list(array.type):
        return encode_fixed_lists(array, child)
    return encode_structs(array, child)
