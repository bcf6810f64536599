"""TEMPLATE: strings as templates and variables."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from lsm_fragment.arrays.alphabets import DIGITS
from lsm_fragment.arrays.buffers import binary_parts, valid_mask
from lsm_fragment.arrays.dividing import (
    NO_VARYING_WORDS,
    VaryingWords,
    divide,
    find_varying_words,
    has_many_templates,
)
from lsm_fragment.arrays.sizes import rows_within, total_bytes
from lsm_fragment.arrays.templated import (
    NUMBER,
    U64,
    Bits,
    Layout,
    Slots,
    codes_of,
    count_marks,
    layout_bytes,
    layout_of,
    max_kept_templates,
    max_templates,
    max_text_bytes,
    numbers_of,
    slots_of,
    templates_of,
    texts_of,
)
from lsm_fragment.arrays.types import is_string
from lsm_fragment.arrays.worded import Words
from lsm_fragment.blocks.compression import compressed_bytes
from lsm_fragment.encodings.allowance import may_be_large
from lsm_fragment.encodings.integers import encode_ints
from lsm_fragment.encodings.letters import encode_strings
from lsm_fragment.encodings.node import (
    MAX_VALUE_BYTES,
    Buffer,
    Encoding,
    Node,
    padded_bytes,
    raw_bytes,
    stored_bytes,
    with_nulls_filled,
    with_validity,
)
from lsm_fragment.encodings.plain import bytes_node, take_values
from lsm_fragment.encodings.reading import ChunkReader, Keep, NodeShape
from lsm_fragment.encodings.samples import CODEC_FRACTION, estimate_distinct
from lsm_fragment.encodings.stored_templates import StoredRows, joined_stored, stored
from lsm_fragment.encodings.varlen import encode_varlen, text_parts
from lsm_fragment.encodings.vocabulary import MIN_TEXT_BYTES, encode_by_vocabulary
from lsm_fragment.native.encodings.decode import Cursor, IntegerStream

ENCODING = Encoding.TEMPLATE
SHAPE = NodeShape(children=5, has_param=True)

_MIN_TEMPLATED: Final = 64
"""Do not try templates on fewer strings."""
_SAMPLE_ROWS: Final = 1024
_SAMPLE_TEXT_BYTES: Final = 128 << 10
"""Compress at most this much text to see whether templates pay."""
_LENGTH_BYTES: Final = 4
_OFFSET_BYTES: Final = 4
_SAMPLE_VARIABLES_BYTES: Final = 64 << 10
_RARE: Final = 0.5
"""Look for words if the sample has more templates per row."""
_ALL_RARE: Final = 0.8
"""Store text if the sample has more templates per row although words are variables."""
_TEMPLATE_BYTES_DIVISOR: Final = 2
"""Require at least 2 bytes of text per byte of template."""
_MAX_TEMPLATES_FRACTION: Final = 1.05
"""Accept templates that take up to 5% more bytes than text, for the time that they save."""
_ALL_VARIABLE: Final = 0.95
"""Skip templates above this variable-byte fraction (ids, tokens): they would save nothing."""
_MOSTLY_VARIABLE: Final = 0.75
"""Above this variable-byte fraction, templates must also save bytes: they no longer save time."""
_MAX_SEARCHED_FRACTION: Final = 0.75
"""Require templates to save a quarter of the bytes if there are many, or words that vary: finding words,
dividing, and looking templates up in each merge takes more time than compressing the text."""
_MUCH: Final = 0.65
"""Do not look for words that vary where a vocabulary takes at most this fraction of the bytes of text."""
_PART_BYTES: Final = 1 << 20
_MUCH_OF_PART: Final = 0.8
"""Try a vocabulary only if in a part of this size it takes at most this fraction; of the whole it takes less,
as words are stored once. Of eight kinds of text, those with 0.75 and less come to 0.65 and less, and log
lines with 0.83 only to 0.78."""
_FIRST_LOOK_ROWS: Final = 1024
"""Look for words in this many rows first, and in a whole sample only if that is promising."""
_PROMISING_FRACTION: Final = 0.85
_MIN_PRECEDENT_ROWS: Final = 1024
"""Let a chunk of at least this many rows be a precedent of others: as many as a sample has, ..."""
_MANY_ROWS: Final = 8192
_MAX_PRECEDENT_FACTOR: Final = 8
_MAX_FACTOR_OF_FEW: Final = 1.5
"""... up to 8 times as large from this many rows on, and else half as large again: so the next file of an
ingest is not searched, but what a merge makes of several is."""
_MIN_TELLING_BYTES: Final = 4 * MIN_TEXT_BYTES
"""Let a chunk of at least this much text tell whether others are stored by a vocabulary."""
_MAX_USES: Final = 16
"""Search anew after at most this many chunks."""


class Precedent:
    """What became of a column's last chunks, so that not every chunk is searched.

    For one thread at a time. Two processes may so store the same rows in other bytes.
    """

    @staticmethod
    def of_text(rows: int, *, by_vocabulary: bool | None = None) -> Precedent:
        """Returns the precedent of a chunk of this many rows that was searched, and stayed text.

        by_vocabulary: whether it is stored by a vocabulary, if that is to hold for others.
        """
        precedent = Precedent()
        precedent.note(None, rows)
        precedent._by_vocabulary = by_vocabulary
        return precedent

    def __init__(self) -> None:
        self._words: VaryingWords | None = None
        self._rows = 0
        self._searches = self._uses = 0
        self._holds = False
        self._by_vocabulary: bool | None = None

    def note(self, words: VaryingWords | None, rows: int) -> None:
        """Notes the result of a search. words: None if the strings stay text."""
        is_same = (words is None) == (self._words is None) and self._rows > 0
        self._searches = self._searches + 1 if is_same else 1
        self._words, self._rows = words, rows
        self._uses = min(1 << self._searches, _MAX_USES) if rows >= _MIN_PRECEDENT_ROWS else 0

    def use(self, rows: int) -> tuple[bool, VaryingWords | None]:
        """Returns whether the last result holds for a chunk of this many rows, and the words; each search
        with the same result holds for twice as many chunks."""
        factor = _MAX_PRECEDENT_FACTOR if self._rows >= _MANY_ROWS else _MAX_FACTOR_OF_FEW
        self._holds = self._uses > 0 and rows <= factor * self._rows
        if not self._holds:
            return False, None
        self._uses -= 1
        return True, self._words

    @property
    def by_vocabulary(self) -> bool | None:
        """Whether text that is no templates is stored by a vocabulary, if the last result holds for it; None
        if that is to be found out."""
        return self._by_vocabulary if self._holds else None

    def note_text(self, array: pa.Array, *, by_vocabulary: bool) -> None:
        """Notes how a chunk's strings without templates are stored. Little text says nothing of more: its
        words hardly recur yet."""
        if _text_bytes(array) >= _MIN_TELLING_BYTES:
            self._by_vocabulary = by_vocabulary
            self._holds = True


class _Found(NamedTuple):
    """What a search has found."""

    varying: VaryingWords | None = None
    """The words that are variables; None if text is better than templates, as far as a sample tells."""
    by_words: Node | None = None
    """The strings by a vocabulary, if that is better than text."""
    has_tried: bool = False
    """Whether a vocabulary was tried."""


def encode_by_templates(
    array: pa.Array, precedent: Precedent | None = None, words: Words | None = None
) -> Node | None:
    """Encodes strings by templates and variables, or by a vocabulary where that is better and was tried; None
    if text is better.

    precedent: of the column's chunks before, changed by this one. words: those of the strings, if they are
    known.
    """
    sample = _Sample(_stretch(array))
    if len(sample.strings) < _MIN_TEMPLATED:
        return None
    if precedent is not None:
        holds, varying = precedent.use(len(array))
        if holds and varying is None:
            return None
        if varying is not None and (node := _encoded(array, sample, varying)) is not None:
            return node
    found = _search(array, sample, words)
    node = None if found.varying is None else _encoded(array, sample, found.varying)
    if precedent is not None:
        precedent.note(None if node is None else found.varying, len(array))
        if found.has_tried:
            precedent.note_text(array, by_vocabulary=found.by_words is not None)
    return node or found.by_words


def _search(array: pa.Array, sample: _Sample, words: Words | None) -> _Found:
    """Looks for words that are variables, and tries a vocabulary before."""
    if (found := sample.divided(NO_VARYING_WORDS)) is None:
        return _Found()
    estimate = _all_templates(found)
    if sample.rarity(found) <= _RARE and not has_many_templates(estimate, len(array)):
        return _Found(NO_VARYING_WORDS)
    if words is None and not _may_be_worded(array):
        return _Found(_searched_words(array, sample, estimate))
    tried = encode_by_vocabulary(*text_parts(array), words=words)
    if tried is not None and tried.fraction <= _MUCH:
        return _Found(None, tried.node, has_tried=True)
    found_words = _searched_words(array, sample, estimate)
    return _Found(found_words, None if tried is None else tried.node, has_tried=True)


def _may_be_worded(array: pa.Array) -> bool:
    """Returns whether a part of strings is much smaller by its words, or says too little."""
    start = len(array) // 3
    part = array.slice(start, rows_within([array.slice(start)], _PART_BYTES))
    if 4 * len(part) > len(array):
        return True
    tried = encode_by_vocabulary(*text_parts(part))
    return tried is not None and tried.fraction <= _MUCH_OF_PART


def _searched_words(array: pa.Array, sample: _Sample, estimate: float) -> VaryingWords | None:
    """Returns the words that are variables; None if a sample shows that text is better.

    estimate: of the number of templates without such words.
    """
    words = find_varying_words(array, _FIRST_LOOK_ROWS)
    if not len(words.shapes) and estimate > max_templates(len(array)):
        return None
    found = sample.divided(words)
    if found is None or sample.rarity(found) > _ALL_RARE:
        return None
    return None if sample.fraction(found) > _PROMISING_FRACTION else find_varying_words(array)


def _encoded(array: pa.Array, sample: _Sample, words: VaryingWords) -> Node | None:
    """Encodes strings with these words as variables; None if that saves too little."""
    found = sample.divided(words)
    if found is None:
        return None
    is_searched = len(words.shapes) or has_many_templates(_all_templates(found), len(array))
    max_fraction = _MAX_SEARCHED_FRACTION if is_searched else _MAX_TEMPLATES_FRACTION
    if (by_row := sample.fraction(found)) > max_fraction:
        return None
    divided = divide(array, max_templates(len(array)), words)
    node = None if divided is None else encode_templated(*divided, _text_bytes(array))
    if node is None:
        return None
    # Few rows of a sample have most templates and slots of the whole: their cost is taken from the whole.
    by_slot = (
        stored_bytes(*_by_slot(node)) / node.text_bytes * sample.text_bytes / sample.stored_bytes
    )
    return node if by_row + by_slot <= max_fraction else None


class _Sample:
    """Some strings of a chunk, and what they take as text."""

    def __init__(self, strings: pa.Array) -> None:
        self.strings = strings
        self.text_bytes = max(1, _text_bytes(strings))
        self._last: tuple[VaryingWords, pa.Array | None] | None = None

    @cached_property
    def stored_bytes(self) -> int:
        """Compressed bytes as text."""
        return stored_bytes(encode_strings(self.strings))

    def divided(self, words: VaryingWords) -> pa.Array | None:
        """Returns the strings in templates, if they have any; remembers the last words."""
        if self._last is None or self._last[0] is not words:
            found = divide(self.strings, len(self.strings), words)
            self._last = words, None if found is None else found.array
        return self._last[1]

    def rarity(self, found: pa.Array) -> float:
        """Returns the number of templates per row."""
        return len(templates_of(found)) / len(self.strings)

    def fraction(self, found: pa.Array) -> float:
        """Returns the compressed bytes that grow with the rows as a fraction of those of text; infinity if
        templates would save nothing."""
        if not count_marks(templates_of(found)):
            return math.inf
        codes, *variables = _by_row(found)
        variable = sum(map(raw_bytes, variables)) / self.text_bytes
        if variable > _ALL_VARIABLE:
            return math.inf
        fraction = stored_bytes(codes, *variables) / self.stored_bytes
        is_worth_it = variable <= _MOSTLY_VARIABLE or fraction <= CODEC_FRACTION
        return fraction if is_worth_it else math.inf


def _all_templates(sample: pa.Array) -> float:
    """Estimates the number of templates of the whole from a templated sample."""
    return estimate_distinct(np.bincount(codes_of(sample), minlength=1))


def _by_row(array: pa.Array) -> tuple[Node, Node, Node]:
    """Returns the children of a TEMPLATE node that grow with its rows: codes, numbers and texts."""
    valid, codes = valid_mask(array), codes_of(array)
    if valid is not None:
        codes = with_nulls_filled(codes, valid)
    numbers, texts = (
        bytes_node(_without_hidden(variables, valid))
        for variables in (numbers_of(array), texts_of(array))
    )
    return encode_ints(codes), numbers, texts


def _by_slot(node: Node) -> tuple[Node, ...]:
    """Returns the children of a TEMPLATE node that grow with its templates and their slots."""
    templates, _, alphabets, _, _ = node.children
    return templates, alphabets


def _stretch(array: pa.Array) -> pa.Array:
    """Returns adjacent rows from the middle, of limited size."""
    sample = array.slice((len(array) - min(len(array), _SAMPLE_ROWS)) // 2, _SAMPLE_ROWS)
    return sample.slice(0, rows_within([sample], _SAMPLE_TEXT_BYTES))


def _text_bytes(strings: pa.Array) -> int:
    """Returns the bytes of strings, nulls left out."""
    return total_bytes(strings) - _LENGTH_BYTES * len(strings)


def encode_templated(array: pa.Array, alphabets: U64, text_bytes: int) -> Node | None:
    """Encodes a templated array; None if its templates are too many or too long for the number of rows.

    alphabets, text_bytes: see `lsm_fragment.arrays.templated.TextSurvey`.
    """
    templates = templates_of(array)
    is_many = len(templates) > max_kept_templates(len(array) - array.null_count)
    if is_many or total_bytes(templates) * _TEMPLATE_BYTES_DIVISOR > text_bytes:
        return None
    return _templated_node(array, alphabets, text_bytes)


def _templated_node(array: pa.Array, alphabets: U64, text_bytes: int) -> Node:
    templates = templates_of(array)
    codes, numbers, texts = _by_row(array)
    # The part that queries read alone comes first.
    head = (encode_varlen(templates), codes, encode_ints(alphabets))
    sample = _middle_bytes(numbers.buffers[0])
    is_dense = compressed_bytes(sample) > CODEC_FRACTION * len(sample)
    children = (*head, replace(numbers, is_dense=is_dense), texts)
    node = with_validity(Encoding.TEMPLATE, len(array), valid_mask(array), [], children=children)
    head_bytes = sum(map(raw_bytes, head)) + sum(map(padded_bytes, node.buffers))
    slots = slots_of(templates)
    layout = layout_bytes(len(templates), slots.all_numbers + slots.all_texts)
    decoding_bytes = layout + max_text_bytes(array, slots)
    return replace(
        node,
        param=head_bytes,
        known_bytes=MAX_VALUE_BYTES * len(array) + decoding_bytes,
        text_bytes=text_bytes,
    )


def _without_hidden(variables: pa.Array, valid: npt.NDArray[np.bool_] | None) -> memoryview:
    """Returns the bytes of the variables, without those of null rows."""
    ends, data = binary_parts(variables)
    if valid is not None and np.any(np.diff(ends)[~valid]):
        ends, data = binary_parts(variables.filter(pa.array(valid)))
    return data[int(ends[0]) : int(ends[-1])]


def _middle_bytes(data: Buffer) -> memoryview:
    view = memoryview(data).cast("B")
    start = max(0, (view.nbytes - _SAMPLE_VARIABLES_BYTES) // 2)
    return view[start : start + _SAMPLE_VARIABLES_BYTES]


def fits(dtype: pa.DataType) -> bool:
    return is_string(dtype)


def decode(reader: ChunkReader, dtype: pa.DataType, length: int, keep: Keep) -> pa.Array:
    head = take_head(reader, dtype, length)
    variables = take_variables(reader.cursor)
    if not keep.templates:
        return head.joined(variables, reader.allowance.charge)
    rows = head.rows(variables, reader.allowance.charge)
    if may_be_large(head.templates, length):
        reader.allowance.check_kept(max_text_bytes(rows, head.slots))
    return rows


class TemplateHead(Struct, frozen=True, kw_only=True, dict=True):
    """The part of a TEMPLATE chunk that does not depend on variables."""

    templates: pa.Array
    """May include templates that no row uses."""
    slots: Slots
    length: int
    """Number of rows."""
    validity: pa.Buffer | None
    """The validity bitmap; None if no row is null."""
    null_count: int
    _codes: IntegerStream
    _alphabets: pa.Buffer
    """Alphabets of the slots for texts."""

    @cached_property
    def layout(self) -> Layout:
        return layout_of(self.templates, self.slots.all_numbers + self.slots.all_texts)

    @cached_property
    def alphabets(self) -> U64:
        """The alphabet of each slot (`lsm_fragment.arrays.alphabets`)."""
        alphabets = np.full(len(self.layout.kinds), DIGITS, dtype=np.uint64)
        alphabets[self.layout.kinds != NUMBER] = np.frombuffer(self._alphabets, dtype=np.uint64)
        return alphabets

    @cached_property
    def codes(self) -> pa.Array:
        """The template of each row, null where the string is; decoded on first use. Raises `ValueError`."""
        buffers = [self.validity, self._codes.codes(len(self.templates))]
        return pa.Array.from_buffers(pa.int32(), self.length, buffers, self.null_count)

    def rows(
        self, variables: tuple[pa.Buffer, pa.Buffer], charge: Callable[[int], None]
    ) -> pa.Array:
        """Returns a templated array. variables: numbers and texts. Raises `ValueError`."""
        charge(2 * _OFFSET_BYTES * len(self.codes))
        return stored(self._with(variables), charge)

    def joined(
        self,
        variables: tuple[pa.Buffer, pa.Buffer],
        charge: Callable[[int], None],
        chosen: Bits | None = None,
    ) -> pa.Array:
        """Returns the strings of the chosen rows, or of all. variables: see `rows`. Raises `ValueError`."""
        return joined_stored(self._with(variables), self.layout, charge, chosen)

    def _with(self, variables: tuple[pa.Buffer, pa.Buffer]) -> StoredRows:
        return StoredRows(self.templates, self.slots, self.codes, *variables)


def take_head(reader: ChunkReader, dtype: pa.DataType, length: int) -> TemplateHead:
    """Takes the validity of a TEMPLATE node, and the children that do not depend on variables."""
    cursor = reader.cursor
    head_bytes, start = cursor.param, cursor.position
    validity, nulls = reader.validity()
    templates = _take_templates(reader, dtype)
    codes = cursor.child_integers(length)
    slots = slots_of(templates)
    reader.allowance.charge(layout_bytes(len(templates), slots.all_numbers + slots.all_texts))
    alphabets = cursor.child_integers(slots.all_texts).words(8)
    if cursor.position - start != head_bytes:
        raise ValueError("templates and codes do not take the bytes that their node states")
    return TemplateHead(
        templates=templates,
        slots=slots,
        length=length,
        validity=validity,
        null_count=nulls,
        _codes=codes,
        _alphabets=alphabets,
    )


def _take_templates(reader: ChunkReader, dtype: pa.DataType) -> pa.Array:
    if reader.cursor.next_encoding != Encoding.VARLEN:
        raise ValueError("templates have strings that are not VARLEN")
    strings = reader.decode(dtype, reader.cursor.next_length)
    if strings.null_count:
        raise ValueError("a null among templates")
    return strings


def take_variables(cursor: Cursor) -> tuple[pa.Buffer, pa.Buffer]:
    """Takes the remaining children of a TEMPLATE node: numbers and texts."""
    return _take_bytes(cursor), _take_bytes(cursor)


def _take_bytes(cursor: Cursor) -> pa.Buffer:
    length = cursor.next_length
    if cursor.take(length) != Encoding.PLAIN or cursor.null_count:
        raise ValueError("variables of templates are not PLAIN bytes")
    return take_values(cursor, pa.uint8(), length)
