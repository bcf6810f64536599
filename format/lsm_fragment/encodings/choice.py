"""Encodes storage arrays to chunks: picks a light encoding from the data (SPEC section 5).

The choice looks at small samples, so it is deterministic. `lsm_fragment.encodings.integers` encodes
integers. The idea of cascading light encodings before a general codec is BtrBlocks'.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from lsm_fragment import native
from lsm_fragment.arrays.buffers import (
    binary_parts,
    bits_of,
    dictionary_codes,
    fixed_width_bytes,
    fixed_width_view,
    float_words,
    int_dtype,
    pack_bits,
    valid_mask,
)
from lsm_fragment.arrays.dictionaries import list_bytes, with_distinct_values
from lsm_fragment.arrays.dividing import (
    NO_VARYING_WORDS,
    divide,
    find_varying_words,
    has_many_templates,
)
from lsm_fragment.arrays.hashing import distinct_hashes, value_hashes
from lsm_fragment.arrays.joining import in_order_of_use
from lsm_fragment.arrays.moves import keep, list_parts, present_items, take
from lsm_fragment.arrays.sizes import hidden_bytes, nulls_bytes, rows_within, total_bytes
from lsm_fragment.arrays.storage import decoded
from lsm_fragment.arrays.templated import (
    I32,
    TEMPLATES_SHARE,
    U64,
    TextSurvey,
    codes_of,
    count_marks,
    joined,
    layout_bytes,
    most_text_bytes,
    numbers_of,
    slots_of,
    survey_texts,
    templates_of,
    text,
    texts_of,
)
from lsm_fragment.arrays.types import (
    is_binary_like,
    is_list_like,
    is_string,
    is_templated,
    may_stay_coded,
    value_type,
)
from lsm_fragment.blocks.compression import Part, compressed_bytes
from lsm_fragment.encodings.integers import (
    Survey,
    encode_backed_ints,
    encode_ints,
    encode_multiples,
    encode_surveyed,
    sampled,
    survey,
)
from lsm_fragment.encodings.letters import Lettering, find_lettering, sampled_bytes
from lsm_fragment.encodings.node import (
    WORD_BYTES,
    Buffer,
    Encoding,
    Node,
    join_buffers,
    pack_nodes,
    padded_bytes,
    raw_bytes,
)

_MOST_VALUE_BYTES: Final = 24
"""Bytes that a reader charges for a value beside its data: an integer, and 16 bytes of a decimal made of
it."""
_SAMPLE_VALUES: Final = 2048
_SAMPLE_SLACK: Final = 1.5
"""A sample may have this many times the share of distinct values that a dictionary may have."""
_WIDE_BITS: Final = 4
"""Packed bits of a value from which other encodings of numbers than by bits are tried."""
_OTHERS_SHARE: Final = 32
"""One of so many doubles may be no decimal of few digits."""
_OTHER_BITS: Final = 96
"""What a double that is none takes: its row and itself."""
_PLAIN_SHARE: Final = 0.97
"""Share of their bits from which values are rather stored as they are, which takes no decoding."""
_CODEC_PAYS: Final = 0.85
"""The share that a codec has to make of packed bits, or templates of text, for the time that it takes."""
_LOOSE_SHARE: Final = 32
"""One of so many bytes may be other than packed in a payload that is stored without a codec."""
_DISTINCT_SHARE: Final = 3
"""A dictionary pays if there are at least this many values to each distinct one."""
_RECURRING_SHARE: Final = 8
"""The same where values of a sample hardly recur: coding them takes no longer than a codec takes for them."""
_DISTINCT_LISTS_SHARE: Final = 2
"""The same as `_DISTINCT_SHARE` for lists, which take more room and more work."""


_LEAST_LETTERS: Final = 1024
"""The fewest bytes that are packed as letters: fewer take hardly any room, and an alphabet beside them."""
_APART_BYTES: Final = 256 << 10
"""Text of so many bytes is compressed apart from its lengths, since copying it takes longer."""
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


class Coding(Enum):
    """What is known of an array beside its values."""

    OPEN = auto()
    """Nothing: the dictionary of a coded array may have equal values, and a plain array may be coded."""
    DISTINCT = auto()
    """The values of the dictionary are distinct; a plain array stays as it is."""
    FINAL = auto()
    """Besides, the dictionary or the templates are exactly those in use, in the order of their first use."""


@dataclass(frozen=True, slots=True)
class EncodedArray:
    """A chunk before compression."""

    encoding: Encoding
    meta: bytes
    parts: tuple[Part, ...]
    """The payload, in parts that are compressed apart."""
    decoded_bytes: int
    """The most bytes that decoding takes, without the values that dictionaries stand for."""
    values: int
    """Values of all nodes together."""
    dictionaries: int
    """Number of dictionary nodes."""
    text_bytes: int
    """The bytes of all strings that templates and variables, or letters, make."""

    @property
    def raw_bytes(self) -> int:
        return sum(part.data.nbytes for part in self.parts)

    @property
    def raw(self) -> bytes:
        return b"".join(part.data for part in self.parts)


def encode_array(
    array: pa.Array,
    *,
    is_decided: bool = False,
    is_backed: bool = False,
    seen: TextSurvey | None = None,
) -> EncodedArray:
    """Encodes an array.

    array: a storage array, or a dictionary-coded or templated one whose dictionary or templates are exactly
    those in use, in the order of use. is_decided: whether more than nothing is known of it, see `Coding`.
    is_backed: avoids every encoding in which values take no bytes; then `array` must not be dictionary-coded.
    seen: what is known of a templated array.
    """
    root = (
        _encode_backed(array)
        if is_backed
        else _encode_root(array, is_decided=is_decided, seen=seen)
    )
    nodes = list(root.walk())
    return EncodedArray(
        root.encoding,
        pack_nodes(root),
        _parts(root),
        sum(map(_most_decoded_bytes, nodes)),
        sum(node.length for node in nodes),
        sum(node.encoding is Encoding.DICTIONARY for node in nodes),
        sum(node.text_bytes for node in nodes),
    )


def _parts(root: Node) -> tuple[Part, ...]:
    """Returns the raw payload: of templates what queries read alone and the variables; of much text its whole
    words, which are not copied, and the rest; of other values all of it."""
    if root.encoding is Encoding.TEMPLATE and root.param:
        *head, numbers, texts = root.children
        whole, rest = _apart(numbers, texts)
        return Part(join_buffers(replace(root, children=tuple(head)))), *whole, Part(rest)
    if root.encoding in (Encoding.VARLEN, Encoding.LETTERS) and not root.has_validity:
        whole, raw = _apart(root, replace(root, buffers=root.buffers[1:]))
    else:
        whole, raw = (), join_buffers(root)
    loose = sum(
        memoryview(buffer).nbytes
        for node in root.walk()
        if not node.is_dense
        for buffer in node.buffers
    )
    size = raw.nbytes + sum(part.data.nbytes for part in whole)
    return *whole, Part(raw, loose * _LOOSE_SHARE <= size)


def _apart(node: Node, rest: Node) -> tuple[tuple[Part, ...], memoryview]:
    """Returns the whole words of a node's bytes as a part, if they are many; and the other bytes with what
    follows them in the payload."""
    data = memoryview(node.buffers[0]).cast("B")
    whole = data.nbytes - data.nbytes % WORD_BYTES if data.nbytes >= _APART_BYTES else 0
    others = join_buffers(replace(rest, buffers=(data[whole:], *rest.buffers)))
    return (Part(data[:whole], node.is_dense),) if whole else (), others


def _most_decoded_bytes(node: Node) -> int:
    """Returns the bytes that `lsm_fragment.encodings.coding` charges: integers as 64 bits, and once more
    when they are wrapped."""
    return node.known_bytes or _MOST_VALUE_BYTES * node.length


def _encode_root(array: pa.Array, *, is_decided: bool, seen: TextSurvey | None) -> Node:
    """Encodes an array, possibly a templated one, or strings that may become so."""
    if array.null_count == len(array):
        return _encode(array)
    if is_templated(array.type):
        seen = seen or survey_texts(array)
        return _encode_templated(array, seen.alphabets, seen.text_bytes) or _encode_strings(
            joined(array)
        )
    if is_string(array.type):
        coded = None if is_decided else _encode_by_sampled_dictionary(array)
        return coded or _encode_by_templates(array) or _encode_strings(array)
    return _encode(array, is_decided=is_decided)


def _encode(array: pa.Array, *, is_decided: bool = False) -> Node:
    length, dtype = len(array), array.type
    if array.null_count == length:
        stored = value_type(dtype)
        return Node(Encoding.NULL, length, length, known_bytes=nulls_bytes(length, stored))
    if pt.is_dictionary(dtype):
        return _encode_dictionary_array(array, is_distinct=is_decided)
    if is_binary_like(dtype):
        coded = None if is_decided else _encode_by_sampled_dictionary(array)
        return coded or _encode_strings(array)
    if is_decided and may_stay_coded(dtype):
        return _encode_undivided(array)
    if pt.is_boolean(dtype):
        return _encode_bool(array)
    if fixed_width_bytes(dtype) is not None:
        return _encode_fixed_width(array)
    return _encode_nested(array)


# --- fixed width ----------------------------------------------------------------------------


def _encode_fixed_width(array: pa.Array) -> Node:
    words, valid = _words(array), valid_mask(array)
    if words is None:
        return _encode_by_sampled_dictionary(array) or _encode_wide(array)
    if valid is not None:
        words = _filled(words, valid)
    sample = _as_integers(sampled(words), array.type)
    seen = survey(sample)
    is_wide = not seen.has_runs and seen.bits > _WIDE_BITS
    if is_wide:
        if (node := _encode_decimals(words, array.type, seen)) is not None:
            return _under_nulls(node, valid)
        if (node := _encode_by_small_dictionary(array, seen)) is not None:
            return node
    integers = _as_integers(words, array.type)
    if is_wide:
        if (node := encode_multiples(integers, sample)) is not None:
            return _under_nulls(node, valid)
        if (is_dense := _plain_is_dense(array, sample, seen)) is not None:
            return _encode_plain(array, is_dense=is_dense)
    return _under_nulls(encode_surveyed(integers, sample, seen), valid)


def _under_nulls(node: Node, valid: npt.NDArray[np.bool_] | None) -> Node:
    """Adds the validity of values to a node that has something in null places too."""
    if valid is None:
        return node
    return replace(
        node,
        null_count=len(valid) - int(np.count_nonzero(valid)),
        has_validity=True,
        buffers=(pack_bits(valid), *node.buffers),
    )


def _filled(values: npt.NDArray[Any], valid: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Returns values where each null has the value before it, which takes the fewest bits."""
    out = np.empty_like(values)
    native.arrays.integers.fill_nulls(
        native.as_words(values), valid.view(np.uint8), native.as_words(out)
    )
    return out


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


def _plain_is_dense(array: pa.Array, sample: npt.NDArray[Any], seen: Survey) -> bool | None:
    """Returns None if packed numbers take less than those as they are; else whether a codec is no use to
    these."""
    bits = array.type.bit_width
    if 2 * seen.bits < bits:
        return None
    sample = sample[: 2 * _SAMPLE_VALUES]
    if 8 * compressed_bytes(sample.tobytes()) < _CODEC_PAYS * seen.bits * len(sample):
        return False
    return True if seen.bits > _PLAIN_SHARE * bits else None


def _encode_by_small_dictionary(array: pa.Array, seen: Survey) -> Node | None:
    """Encodes numbers by a dictionary if codes and dictionary take less than packed numbers do."""
    most = 1 << min(31, int(_CODEC_PAYS * seen.bits))
    coded = _by_sampled_dictionary(array, most)
    if coded is None:
        return None
    distinct = len(coded.dictionary)
    bits = len(array) * (distinct - 1).bit_length() + distinct * array.type.bit_width
    return _encode_coded(coded) if bits < _CODEC_PAYS * seen.bits * len(array) else None


def _encode_wide(array: pa.Array) -> Node:
    """Encodes values that are no integers as they are, without a codec if a sample does not shrink."""
    node = _encode_plain(array)
    return replace(node, is_dense=_is_noise(node.buffers[-1]))


def _is_noise(data: Buffer) -> bool:
    """Returns whether a codec is no use to bytes, as a sample shows."""
    sample = sampled_bytes(memoryview(data).cast("B"))
    return compressed_bytes(sample) > _PLAIN_SHARE * sample.nbytes


def _encode_plain(array: pa.Array, *, is_dense: bool = False) -> Node:
    width = fixed_width_bytes(array.type)
    assert width is not None
    valid = valid_mask(array)
    if width == 0:
        return _with_validity(Encoding.PLAIN, len(array), valid, [np.empty(0, np.uint8)])
    word = WORD_BYTES if width % WORD_BYTES == 0 else width if width in (1, 2, 4) else 1
    words = fixed_width_view(array, np.dtype((f"u{word}", (width // word,)))).reshape(
        len(array), -1
    )
    if valid is not None:
        words = np.where(valid[:, None], words, words.dtype.type(0))
    return _with_validity(
        Encoding.PLAIN, len(array), valid, [words.reshape(-1)], param=width, is_dense=is_dense
    )


def _encode_decimals(words: npt.NDArray[Any], dtype: pa.DataType, seen: Survey) -> Node | None:
    """Encodes doubles that are decimals of few digits as integers, but for some; None if that takes no less
    (the idea is ALP's)."""
    if not pt.is_float64(dtype):
        return None
    values = words.view(np.float64)
    sample = sampled(values)
    digits = native.encodings.floats.find_digits(sample, len(sample) // _OTHERS_SHARE)
    if digits < 0:
        return None
    others = np.empty(len(values) // _OTHERS_SHARE, dtype=np.uint32)
    integers = np.empty(len(values), dtype=np.int64)
    count = native.encodings.floats.to_integers(values, digits, integers, others)
    if count < 0:
        return None
    of_integers = survey(sampled(integers))
    if of_integers.bits + _OTHER_BITS * count / len(values) >= seen.bits:
        return None
    rows = others[:count]
    return Node(
        Encoding.DECIMAL,
        len(values),
        param=digits | count << 8,
        buffers=(rows, values[rows]),
        children=(encode_ints(integers),),
        is_dense=True,
    )


def _encode_bool(array: pa.Array) -> Node:
    valid = valid_mask(array)
    values = bits_of(array.buffers()[1], array.offset, len(array))
    bits = pack_bits(values if valid is None else values & valid)
    return _with_validity(Encoding.PLAIN, len(array), valid, [bits])


def _with_validity(
    encoding: Encoding,
    length: int,
    valid: npt.NDArray[np.bool_] | None,
    buffers: list[Any],
    *,
    param: int = 0,
    is_dense: bool = False,
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
        buffers=tuple(buffers),
        children=children,
        is_dense=is_dense,
    )


# --- dictionaries ---------------------------------------------------------------------------


def by_dictionary(array: pa.Array) -> pa.Array:
    """Dictionary-codes an array, values in order of use, if they repeat enough; otherwise returns it as it
    is.

    Applies to strings, binaries, lists and maps; for other types `encode_array` decides by itself.
    """
    if is_templated(array.type):
        sample = _middle(array)
        for part in (numbers_of, texts_of):
            if not _are_few(array, sample, _DISTINCT_SHARE, partial(_counts_of_part, part)):
                return array  # where the variables of rows differ, so do rows
        return _by_sampled_dictionary(joined(array)) or array
    if may_stay_coded(array.type):
        return _by_sampled_dictionary(array) or array
    return array


def recoded(array: pa.Array) -> pa.Array:
    """Returns what `by_dictionary` makes of the strings, binaries, lists or maps that a coded array stands
    for."""
    share = _DISTINCT_LISTS_SHARE if pt.is_nested(array.dictionary.type) else _DISTINCT_SHARE
    present, sample = len(array) - array.null_count, _middle(array)
    is_part = len(sample) < len(array)
    if present < 2:
        return decoded(array)
    are_many = len(array.dictionary) * share > present
    # As in `by_dictionary`, a sample decides whether all values are looked at.
    if are_many and is_part and not _are_few(array, sample, share, _counts_of_coded):
        return decoded(array)
    if are_many or not _is_distinct(array.dictionary):
        array = with_distinct_values(array)
    array = in_order_of_use(array)
    if len(array.dictionary) * share > present:
        return decoded(array)
    is_few = not is_part or _are_few(array, _middle(array), share, _counts_of_codes)
    return array if is_few else decoded(array)


def _encode_by_sampled_dictionary(array: pa.Array) -> Node | None:
    coded = _by_sampled_dictionary(array)
    return None if coded is None else _encode_coded(coded)


def _by_sampled_dictionary(array: pa.Array, most_distinct: int = sys.maxsize) -> pa.Array | None:
    """Dictionary-codes an array if its values repeat enough and at most so many are distinct, else None.

    Samples before it hashes everything.
    """
    present = len(array) - array.null_count
    if present < 2:
        return None
    share = _DISTINCT_LISTS_SHARE if pt.is_nested(array.type) else _DISTINCT_SHARE
    sample = _middle(array)
    if len(sample) < len(array) and not _are_few(array, sample, share, _counts, most_distinct):
        return None
    return _coded_values(array, min(most_distinct, present // share))


def _are_few(
    array: pa.Array,
    sample: pa.Array,
    share: int,
    counts_of: Callable[[pa.Array], npt.NDArray[np.int64]],
    most: int = sys.maxsize,
) -> bool:
    """Returns whether values are likely to have so few distinct ones, and at most so many, that a dictionary
    pays.

    sample: neighbouring rows. counts_of: tells how often a sample without nulls has each of its values.
    """
    counts = counts_of(sample)
    if len(counts) > most:
        return False
    if len(counts) * share <= _SAMPLE_SLACK * counts.sum():
        return True
    # Neighbours are often equal only because rows are sorted, so rows far apart are asked too.
    few = int(len(array) - array.null_count) // _RECURRING_SHARE
    return _all_distinct(counts) <= few and _all_distinct(counts_of(_spread(array))) <= few


def _all_distinct(counts: npt.NDArray[np.int64]) -> float:
    """Returns how many distinct values there are in all, whose sample has most of them once.

    That is told by how many of them it has twice (Chao's estimate).
    """
    once, twice = np.count_nonzero(counts == 1), np.count_nonzero(counts == 2)
    return float(len(counts) + once * (once - 1) / (2 * (twice + 1)))


def _counts(sample: pa.Array) -> npt.NDArray[np.int64]:
    """Returns how often each value of a sample without nulls occurs."""
    found = _codes(sample, len(sample))
    assert found is not None, "a sample has more distinct values than rows"
    return np.bincount(found[0])


def _counts_of_part(
    part: Callable[[pa.Array], pa.Array], sample: pa.Array
) -> npt.NDArray[np.int64]:
    """Returns the same of the numbers or texts of a templated sample."""
    return _counts(part(sample))


def _counts_of_coded(sample: pa.Array) -> npt.NDArray[np.int64]:
    """Returns the same of a dictionary-coded sample."""
    return _counts(decoded(sample))


def _counts_of_codes(sample: pa.Array) -> npt.NDArray[np.int64]:
    """Returns the same of a dictionary-coded sample whose dictionary has no value twice."""
    counts = np.bincount(dictionary_codes(sample))
    return counts[counts > 0]


def _distinct(array: pa.Array) -> int:
    return len(distinct_hashes(value_hashes(array)))


def _coded_values(array: pa.Array, most: int) -> pa.Array | None:
    """Dictionary-codes values; None if there are more than `most` distinct ones."""
    found = _codes(array, most)
    if found is None:
        return None
    codes, firsts = found
    valid = valid_mask(array)
    return pa.DictionaryArray.from_arrays(
        pa.array(codes, mask=None if valid is None else ~valid),
        take(array, firsts),
        safe=False,
    )


def _codes(array: pa.Array, most: int) -> tuple[I32, I32] | None:
    """Numbers values in the order of their first use. Returns each row's number, and the
    row of each number's first use; None if there are more than `most` distinct values."""
    rows, valid = len(array), valid_mask(array)
    codes = np.empty(rows, dtype=np.int32)
    firsts = np.empty(rows, dtype=np.int32)
    flags = native.as_flags(valid)
    width = fixed_width_bytes(array.type)
    if width in (1, 2, 4, 8):
        words = fixed_width_view(array, f"u{width}")
        count = native.arrays.integers.code_words(words, flags, most, codes, firsts)
    else:
        offsets, data = _value_bytes(array, width)
        count = native.arrays.strings.code_strings(offsets, data, flags, most, codes, firsts)
    return None if count < 0 else (codes, firsts[:count])


def _value_bytes(
    array: pa.Array, width: int | None
) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Returns where each value begins, and the last one ends, in the bytes that come with it."""
    if pt.is_nested(array.type):
        offsets, numbers = list_bytes(array)
        return offsets, numbers.view(np.uint8)
    if width is None:
        offsets, data = binary_parts(array)
        return offsets, native.as_bytes(data)
    if not width:  # numpy has no values of no bytes
        return np.zeros(len(array) + 1, dtype=np.int64), np.empty(0, dtype=np.uint8)
    values = fixed_width_view(array, np.dtype((np.uint8, width)))
    return width * np.arange(len(array) + 1, dtype=np.int64), values.reshape(-1)


def _middle(array: pa.Array) -> pa.Array:
    """Returns about `_SAMPLE_VALUES` values from the middle. Nulls, which say nothing of values, are left
    out."""
    present = max(1, len(array) - array.null_count)
    rows = min(len(array), _SAMPLE_VALUES * len(array) // present)
    return _without_nulls(array.slice((len(array) - rows) // 2, rows))


def _spread(array: pa.Array) -> pa.Array:
    """Returns about as many values that lie as far apart as they can."""
    rows = min(len(array), _SAMPLE_VALUES)
    places = np.arange(rows, dtype=np.int64) * (len(array) // rows)
    return _without_nulls(take(array, places))


def _without_nulls(sample: pa.Array) -> pa.Array:
    valid = valid_mask(sample)
    return sample if valid is None else keep(sample, valid)


def _encode_dictionary_array(array: pa.Array, *, is_distinct: bool) -> Node:
    present = len(array) - array.null_count
    if not (is_distinct or _is_distinct(array.dictionary)):
        array = with_distinct_values(array)
    share = _DISTINCT_LISTS_SHARE if pt.is_nested(array.dictionary.type) else _DISTINCT_SHARE
    if len(array.dictionary) * share > present:
        values = decoded(array)
        is_fixed = fixed_width_bytes(values.type) is not None
        return _encode_fixed_width(values) if is_fixed else _encode_undivided(values)
    return _encode_coded(array)


def _is_distinct(values: pa.Array) -> bool:
    """Returns whether values are distinct; False also where hashes collide."""
    return values.null_count == 0 and _distinct(values) == len(values)


def _encode_coded(array: pa.Array) -> Node:
    """Makes a DICTIONARY node of a dictionary-coded array whose values are distinct and all used."""
    valid, codes = valid_mask(array), dictionary_codes(array)
    if valid is not None:
        codes = _filled(codes, valid)
    children = (encode_ints(codes), _encode_undivided(array.dictionary))
    return _with_validity(Encoding.DICTIONARY, len(array), valid, [], children=children)


def _encode_undivided(values: pa.Array) -> Node:
    """Encodes values without a dictionary."""
    if is_binary_like(values.type):
        return _encode_strings(values)
    if is_list_like(values.type) or pt.is_map(values.type):
        return _encode_lists(values)
    return _encode_plain(values)


# --- templates ------------------------------------------------------------------------------


def _encode_by_templates(array: pa.Array) -> Node | None:
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
    by_row = _stored_bytes(codes, *variables) / (as_text := _stored_bytes(_encode_strings(sample)))
    is_variable = share > _MOSTLY_VARIABLE
    most = _CODEC_PAYS if is_variable else _TEMPLATES_PAY
    if by_row > most:
        return None
    found = divide(array, len(array) // TEMPLATES_SHARE, words)
    node = None if found is None else _encode_templated(*found, _text_bytes(array))
    if node is None:
        return None
    # A sample has most templates and slots of the whole, in a few rows, so these are counted in the whole.
    by_slot = _stored_bytes(*_by_slot(node)) / as_text * _text_bytes(sample) / node.text_bytes
    return node if by_row + by_slot <= most else None


def _all_templates(sample: pa.Array) -> float:
    """Returns how many templates there are in all, by those of a templated sample."""
    return _all_distinct(np.bincount(codes_of(sample), minlength=1))


def _by_row(array: pa.Array) -> tuple[Node, Node, Node]:
    """Returns the parts of a node of templates that grow with its rows: codes, numbers and texts."""
    valid, codes = valid_mask(array), codes_of(array)
    if valid is not None:
        codes = _filled(codes, valid)
    numbers, texts = (
        _bytes_node(_without_hidden(variables, valid))
        for variables in (numbers_of(array), texts_of(array))
    )
    return encode_ints(codes), numbers, texts


def _by_slot(node: Node) -> tuple[Node, ...]:
    """Returns the parts of a node of templates that grow with its templates and their slots."""
    templates, _, alphabets, _, _ = node.children
    return templates, alphabets


def _stored_bytes(*nodes: Node) -> int:
    """Returns the bytes of nodes, as a codec makes them."""
    stored = compressed_bytes(b"".join(map(join_buffers, nodes)))
    return sum(len(pack_nodes(node)) for node in nodes) + stored


def _stretch(array: pa.Array) -> pa.Array:
    """Returns rows from the middle, of not too many bytes."""
    sample = array.slice((len(array) - min(len(array), _SAMPLE_ROWS)) // 2, _SAMPLE_ROWS)
    return sample.slice(0, rows_within([sample], _SAMPLE_TEXT_BYTES))


def _text_bytes(strings: pa.Array) -> int:
    """Returns the bytes of strings that are not null."""
    return total_bytes(strings) - _LENGTH_BYTES * len(strings)


def _encode_templated(array: pa.Array, alphabets: U64, text_bytes: int) -> Node | None:
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
    head = (_encode_varlen(templates), codes, encode_ints(alphabets))
    sample = _middle_bytes(numbers.buffers[0])
    is_dense = compressed_bytes(sample) > _CODEC_PAYS * len(sample)
    children = (*head, replace(numbers, is_dense=is_dense), texts)
    node = _with_validity(Encoding.TEMPLATE, len(array), valid_mask(array), [], children=children)
    head_bytes = sum(map(raw_bytes, head)) + sum(map(padded_bytes, node.buffers))
    slots = slots_of(templates)
    layout = layout_bytes(len(templates), slots.all_numbers + slots.all_texts)
    decoding_bytes = layout + most_text_bytes(array, slots)
    return replace(
        node,
        param=head_bytes,
        known_bytes=_MOST_VALUE_BYTES * len(array) + decoding_bytes,
        text_bytes=text_bytes,
    )


def _without_hidden(variables: pa.Array, valid: npt.NDArray[np.bool_] | None) -> memoryview:
    """Returns the bytes of rows that are not null."""
    ends, data = binary_parts(variables)
    if valid is not None and np.any(np.diff(ends)[~valid]):
        ends, data = binary_parts(variables.filter(pa.array(valid)))
    return data[int(ends[0]) : int(ends[-1])]


def _bytes_node(data: memoryview) -> Node:
    size = data.nbytes
    return Node(Encoding.PLAIN, size, param=1, buffers=(data,), known_bytes=size)


def _middle_bytes(data: Buffer) -> memoryview:
    view = memoryview(data).cast("B")
    start = max(0, (view.nbytes - _SAMPLE_VARIABLES_BYTES) // 2)
    return view[start : start + _SAMPLE_VARIABLES_BYTES]


# --- strings and nested ---------------------------------------------------------------------


def _encode_strings(array: pa.Array) -> Node:
    """Encodes strings or binaries without a dictionary, as letters where a codec hardly makes less of
    them."""
    valid, lengths, data = _text_parts(array)
    is_text = is_string(array.type)
    common = _common_length(lengths, data.nbytes)
    packed = _by_letters(data, common, is_text=is_text)
    if packed is None:
        return _varlen_node(valid, lengths, data, is_dense=not is_text and _is_noise(data))
    lettering, codes = packed
    node = _with_validity(
        Encoding.LETTERS,
        len(array),
        valid,
        [codes, lettering.stored_alphabet],
        param=lettering.letters(data.nbytes),
        is_dense=True,
        children=(_frame_node(data, lettering.holes), _lengths_node(lengths, common)),
    )
    return replace(
        node,
        width=lettering.width,
        known_bytes=_MOST_VALUE_BYTES * len(array) + data.nbytes,
        text_bytes=data.nbytes,
    )


def _by_letters(data: memoryview, length: int, *, is_text: bool) -> tuple[Lettering, Buffer] | None:
    """Returns how bytes are packed as letters, and their codes; None if a sample has too many different ones,
    or a codec makes clearly less of it. length: see `find_lettering`."""
    if data.nbytes < _LEAST_LETTERS:
        return None
    sample = sampled_bytes(data, length)
    likely = find_lettering(sample, length, is_text=is_text)
    if likely is None or not _pays(likely, sample):
        return None
    lettering = likely.framed_by(data)
    if (codes := lettering.pack(data)) is not None:
        return lettering, codes
    # The sample has not all letters.
    complete = find_lettering(data, length, is_text=is_text)
    if complete is None or not _pays(complete, sample):
        return None
    return complete, complete.pack(data)


def _pays(lettering: Lettering, sample: memoryview) -> bool:
    """Returns whether a codec makes hardly less of a sample than its letters take packed, or more."""
    if math.log2(len(lettering.alphabet)) < _CODEC_PAYS * lettering.width:
        return False  # whatever their frequencies are
    return compressed_bytes(sample) >= _CODEC_PAYS * lettering.packed_bytes(sample.nbytes)


def _common_length(lengths: npt.NDArray[Any], total: int) -> int:
    """Returns the bytes of every value that has any; 0 if these differ."""
    longest = int(lengths.max(initial=0))
    return longest if longest * np.count_nonzero(lengths) == total else 0


def _lengths_node(lengths: npt.NDArray[Any], common: int) -> Node:
    """Encodes lengths, those that are 0 or `common` by a bit each, which a codec need not look at."""
    if not common or lengths.all():
        return encode_ints(lengths)
    present = encode_ints((lengths != 0).view(np.uint8), allow_runs=False)
    return Node(Encoding.MULTIPLE, len(lengths), param=common, children=(present,))


def _frame_node(data: memoryview, holes: npt.NDArray[np.uint8]) -> Node:
    """Makes the node of what letters leave out: bytes, and nulls for letters."""
    size = len(holes)
    first = np.frombuffer(data[:size], dtype=np.uint8)
    valid = None if not size else holes == 0
    node = _with_validity(
        Encoding.PLAIN, size, valid, [np.where(holes, np.uint8(0), first)], param=1
    )
    return replace(node, known_bytes=size)


def _encode_varlen(array: pa.Array, ints: Callable[[npt.NDArray[Any]], Node] = encode_ints) -> Node:
    return _varlen_node(*_text_parts(array), ints=ints)


def _varlen_node(
    valid: npt.NDArray[np.bool_] | None,
    lengths: npt.NDArray[Any],
    data: memoryview,
    *,
    is_dense: bool = False,
    ints: Callable[[npt.NDArray[Any]], Node] = encode_ints,
) -> Node:
    return _with_validity(
        Encoding.VARLEN,
        len(lengths),
        valid,
        [data],
        param=data.nbytes,
        is_dense=is_dense,
        children=(ints(lengths),),
    )


def _text_parts(
    array: pa.Array,
) -> tuple[npt.NDArray[np.bool_] | None, npt.NDArray[Any], memoryview]:
    """Returns which strings or binaries are valid, the length of each, 0 for nulls, and all their bytes."""
    valid = valid_mask(array)
    if hidden_bytes(array):
        array = pc.fill_null(array, pa.scalar(b"", pa.binary()).cast(array.type))
    offsets, data = binary_parts(array)
    return valid, np.diff(offsets), data[int(offsets[0]) : int(offsets[-1])]


def _encode_nested(array: pa.Array) -> Node:
    if is_list_like(array.type) or pt.is_map(array.type):
        return _encode_by_sampled_dictionary(array) or _encode_lists(array)
    return _encode_fixed(array, _encode)


def _encode_fixed(array: pa.Array, child: Callable[[pa.Array], Node]) -> Node:
    """Encodes structs and lists of fixed size."""
    dtype, length, valid = array.type, len(array), valid_mask(array)
    if pt.is_fixed_size_list(dtype):
        items = child(present_items(array))  # as structs do, lists push their nulls down
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
    array = text(array)
    dtype, length = array.type, len(array)
    if pt.is_null(dtype):
        return _encode(array)
    if is_binary_like(dtype):
        return _encode_varlen(array, encode_backed_ints)
    if pt.is_boolean(dtype):
        return _encode_bool(array)
    if fixed_width_bytes(dtype) is not None:
        return _encode_plain(array)
    if is_list_like(dtype) or pt.is_map(dtype):
        counts, items = list_parts(array)
        children = (encode_backed_ints(counts), _encode_backed(items))
        return _with_validity(Encoding.LIST, length, valid_mask(array), [], children=children)
    return _encode_fixed(array, _encode_backed)
