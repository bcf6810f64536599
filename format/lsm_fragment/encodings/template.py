"""TEMPLATE: strings as templates and variables."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsm_fragment.arrays.buffers import binary_parts, valid_mask
from lsm_fragment.arrays.dividing import (
    NO_VARYING_WORDS,
    divide,
    find_varying_words,
    has_many_templates,
)
from lsm_fragment.arrays.sizes import rows_within, total_bytes
from lsm_fragment.arrays.templated import (
    TEMPLATES_SHARE,
    U64,
    codes_of,
    count_marks,
    layout_bytes,
    most_text_bytes,
    numbers_of,
    slots_of,
    templates_of,
    texts_of,
)
from lsm_fragment.blocks.compression import compressed_bytes
from lsm_fragment.encodings.integers import encode_ints
from lsm_fragment.encodings.letters import encode_strings
from lsm_fragment.encodings.node import (
    MOST_VALUE_BYTES,
    Buffer,
    Encoding,
    Node,
    padded_bytes,
    raw_bytes,
    stored_bytes,
    with_nulls_filled,
    with_validity,
)
from lsm_fragment.encodings.plain import bytes_node
from lsm_fragment.encodings.samples import CODEC_PAYS, estimate_distinct
from lsm_fragment.encodings.varlen import encode_varlen

_LEAST_TEMPLATED: Final = 64
"""The fewest strings for which templates are tried."""
_SAMPLE_ROWS: Final = 1024
_SAMPLE_TEXT_BYTES: Final = 128 << 10
"""The most text that is compressed to see whether templates pay."""
_LENGTH_BYTES: Final = 4
_SAMPLE_VARIABLES_BYTES: Final = 64 << 10
_SAMPLE_TEMPLATES_SHARE: Final = 2
"""Rows of a sample to each template from which templates hardly recur in it."""
_TEMPLATE_BYTES_SHARE: Final = 2
"""Bytes of text to each byte of templates, at least."""
_TEMPLATES_PAY: Final = 1.05
"""The share of the bytes of text that templates and variables may take, for the time that they spare."""
_ALL_VARIABLE: Final = 0.95
"""The share of a text in variables from which templates spare nothing, as of ids and tokens."""
_MOSTLY_VARIABLE: Final = 0.75
"""The share of a text in variables from which templates spare no time, and so have to spare bytes."""


def encode_by_templates(array: pa.Array) -> Node | None:
    """Encodes strings by templates and variables; None if a sample shows that they take hardly less."""
    sample = _stretch(array)
    if len(sample) < _LEAST_TEMPLATED:
        return None
    words, found = NO_VARYING_WORDS, divide(sample, len(sample))
    if found is None:
        return None
    hardly_recur = len(templates_of(found.array)) * _SAMPLE_TEMPLATES_SHARE > len(sample)
    if hardly_recur or has_many_templates(_all_templates(found.array), len(array)):
        words = find_varying_words(array)
        if len(words.shapes):
            found = divide(sample, len(sample), words)
        elif hardly_recur:
            return None
    if found is None or not count_marks(templates_of(found.array)):
        return None
    codes, *variables = _by_row(found.array)
    share = sum(map(raw_bytes, variables)) / max(1, _text_bytes(sample))
    if share > _ALL_VARIABLE:
        return None
    by_row = stored_bytes(codes, *variables) / (as_text := stored_bytes(encode_strings(sample)))
    is_variable = share > _MOSTLY_VARIABLE
    most = CODEC_PAYS if is_variable else _TEMPLATES_PAY
    if by_row > most:
        return None
    found = divide(array, len(array) // TEMPLATES_SHARE, words)
    node = None if found is None else encode_templated(*found, _text_bytes(array))
    if node is None:
        return None
    # A sample has most templates and slots of the whole, in a few rows, so these are counted in the whole.
    by_slot = stored_bytes(*_by_slot(node)) / as_text * _text_bytes(sample) / node.text_bytes
    return node if by_row + by_slot <= most else None


def _all_templates(sample: pa.Array) -> float:
    """Returns how many templates there are in all, by those of a templated sample."""
    return estimate_distinct(np.bincount(codes_of(sample), minlength=1))


def _by_row(array: pa.Array) -> tuple[Node, Node, Node]:
    """Returns the parts of a node of templates that grow with its rows: codes, numbers and texts."""
    valid, codes = valid_mask(array), codes_of(array)
    if valid is not None:
        codes = with_nulls_filled(codes, valid)
    numbers, texts = (
        bytes_node(_without_hidden(variables, valid))
        for variables in (numbers_of(array), texts_of(array))
    )
    return encode_ints(codes), numbers, texts


def _by_slot(node: Node) -> tuple[Node, ...]:
    """Returns the parts of a node of templates that grow with its templates and their slots."""
    templates, _, alphabets, _, _ = node.children
    return templates, alphabets


def _stretch(array: pa.Array) -> pa.Array:
    """Returns rows from the middle, of not too many bytes."""
    sample = array.slice((len(array) - min(len(array), _SAMPLE_ROWS)) // 2, _SAMPLE_ROWS)
    return sample.slice(0, rows_within([sample], _SAMPLE_TEXT_BYTES))


def _text_bytes(strings: pa.Array) -> int:
    """Returns the bytes of strings that are not null."""
    return total_bytes(strings) - _LENGTH_BYTES * len(strings)


def encode_templated(array: pa.Array, alphabets: U64, text_bytes: int) -> Node | None:
    """Encodes a templated array; None if its templates are too many or too long for so many rows.

    alphabets, text_bytes: see `lsm_fragment.arrays.templated.TextSurvey`.
    """
    templates = templates_of(array)
    is_many = len(templates) * TEMPLATES_SHARE > len(array) - array.null_count
    if is_many or total_bytes(templates) * _TEMPLATE_BYTES_SHARE > text_bytes:
        return None
    return _templated_node(array, alphabets, text_bytes)


def _templated_node(array: pa.Array, alphabets: U64, text_bytes: int) -> Node:
    templates = templates_of(array)
    codes, numbers, texts = _by_row(array)
    # What queries read alone comes first.
    head = (encode_varlen(templates), codes, encode_ints(alphabets))
    sample = _middle_bytes(numbers.buffers[0])
    is_dense = compressed_bytes(sample) > CODEC_PAYS * len(sample)
    children = (*head, replace(numbers, is_dense=is_dense), texts)
    node = with_validity(Encoding.TEMPLATE, len(array), valid_mask(array), [], children=children)
    head_bytes = sum(map(raw_bytes, head)) + sum(map(padded_bytes, node.buffers))
    slots = slots_of(templates)
    layout = layout_bytes(len(templates), slots.all_numbers + slots.all_texts)
    decoding_bytes = layout + most_text_bytes(array, slots)
    return replace(
        node,
        param=head_bytes,
        known_bytes=MOST_VALUE_BYTES * len(array) + decoding_bytes,
        text_bytes=text_bytes,
    )


def _without_hidden(variables: pa.Array, valid: npt.NDArray[np.bool_] | None) -> memoryview:
    """Returns the bytes of rows that are not null."""
    ends, data = binary_parts(variables)
    if valid is not None and np.any(np.diff(ends)[~valid]):
        ends, data = binary_parts(variables.filter(pa.array(valid)))
    return data[int(ends[0]) : int(ends[-1])]


def _middle_bytes(data: Buffer) -> memoryview:
    view = memoryview(data).cast("B")
    start = max(0, (view.nbytes - _SAMPLE_VARIABLES_BYTES) // 2)
    return view[start : start + _SAMPLE_VARIABLES_BYTES]
