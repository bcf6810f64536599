"""Decodes chunks to storage arrays: wraps buffers, and checks that everything fits (SPEC section 5).

`lsm_fragment.native.encodings.decode` walks the nodes and reads integers. Threads may decode at the same
time; long loops let go of the GIL. Every fault is a `ValueError` with the cause; the caller knows the place
and adds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.alphabets import DIGITS
from lsm_fragment.arrays.buffers import bits_of, fixed_width_bytes, integer_bytes
from lsm_fragment.arrays.sizes import nulls_bytes, total_bytes
from lsm_fragment.arrays.storage import decoded
from lsm_fragment.arrays.templated import (
    NUMBER,
    U8,
    U64,
    Bits,
    Layout,
    Slots,
    TextSurvey,
    layout_bytes,
    layout_of,
    most_text_bytes,
    slots_of,
)
from lsm_fragment.arrays.types import (
    is_binary_like,
    is_large_offsets,
    is_list_like,
    is_string,
    may_be_coded,
    may_stay_coded,
)
from lsm_fragment.blocks.compression import Part
from lsm_fragment.encodings.allowance import Allowance, charge_nothing, may_be_large, unfit
from lsm_fragment.encodings.choice import encode_backed, encode_root
from lsm_fragment.encodings.node import (
    INT_ENCODINGS,
    MAX_UNBACKED_VALUES,
    MOST_VALUE_BYTES,
    WORD_BYTES,
    Encoding,
    Node,
    join_buffers,
    pack_nodes,
)
from lsm_fragment.encodings.stored_templates import StoredRows, joined_stored, stored
from lsm_fragment.limits import most_chunk_bytes, too_large
from lsm_fragment.native.arrays.text import is_ascii
from lsm_fragment.native.encodings.decode import Cursor, IntegerStream
from lsm_fragment.native.encodings.letters import MOST_FRAME_BYTES, unpack

_LOOKED_UP_BYTES: Final = 16
"""The most bytes of a value that takes its place at once. Wider ones are counted first, since nulls count
nothing."""
_ANY_VALUES: Final = 2**62
_LENGTH_BYTES: Final = 4
_OFFSET_BYTES: Final = 4
_LARGE_OFFSET_BYTES: Final = 8


def decode_array(
    meta: bytes,
    raw: bytes | memoryview,
    dtype: pa.DataType,
    rows: int,
    *,
    keep_dictionary: bool = False,
    keep_templates: bool = False,
    most_bytes: int | None = None,
    reserve: Callable[[int], None] | None = None,
) -> pa.Array:
    """Decodes a chunk to a storage array of type `dtype`.

    keep_dictionary: keeps strings, binaries, lists and maps dictionary-coded (int32 codes over distinct
    values), so that a merge can move codes instead of bytes.
    keep_templates: keeps strings that are stored as templates and variables as a templated array
    (`lsm_fragment.arrays.templated`).
    most_bytes: the most bytes that the chunk and its values may take, 16 times as much for the values of a
    kept dictionary or of kept templates; by default derived from the payload's length.
    reserve: called with every larger size before memory is allocated for it; what it raises comes through.
    Raises `ValueError` on any inconsistency.
    """
    payload = pa.py_buffer(raw)
    allowance = Allowance(most_bytes or most_chunk_bytes(payload.size), reserve)
    most_values = max(MAX_UNBACKED_VALUES, 8 * payload.size)
    chunk = _Chunk(Cursor(meta, payload, most_values, allowance.charge), allowance)
    array = chunk.decode(
        dtype, rows, keep_dictionary=keep_dictionary, keep_templates=keep_templates
    )
    chunk.cursor.finish()
    return array


@dataclass(frozen=True)
class TemplateHead:
    """What a chunk of strings that is stored as templates says without their variables."""

    templates: pa.Array
    """May be more than rows use."""
    slots: Slots
    length: int
    """How many rows there are."""
    validity: pa.Buffer | None
    """The bitmap of rows that are not null; None if none is."""
    null_count: int
    _codes: IntegerStream
    _alphabets: pa.Buffer
    """Those of the slots for texts."""

    @cached_property
    def layout(self) -> Layout:
        return layout_of(self.templates, self.slots.all_numbers + self.slots.all_texts)

    @cached_property
    def alphabets(self) -> U64:
        """The bytes of each slot (`lsm_fragment.arrays.alphabets`)."""
        alphabets = np.full(len(self.layout.kinds), DIGITS, dtype=np.uint64)
        alphabets[self.layout.kinds != NUMBER] = np.frombuffer(self._alphabets, dtype=np.uint64)
        return alphabets

    @cached_property
    def codes(self) -> pa.Array:
        """The template of each row, null where the string is; decoded when asked for. Raises `ValueError`."""
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


class TemplateDecoder:
    """Decodes a chunk of which the root is TEMPLATE: the head, and then the strings of some rows."""

    def __init__(
        self,
        meta: bytes,
        head: bytes | memoryview,
        dtype: pa.DataType,
        rows: int,
        *,
        most_bytes: int,
        raw_bytes: int,
    ) -> None:
        """head: the raw payload, or its first part. raw_bytes: the length of the whole.

        most_bytes: see `decode_array`. Raises `ValueError`.
        """
        self._allowance = Allowance(most_bytes, None)
        most_values = max(MAX_UNBACKED_VALUES, 8 * raw_bytes)
        self._cursor = cursor = Cursor(
            meta, pa.py_buffer(head), most_values, self._allowance.charge
        )
        if cursor.take(rows) != Encoding.TEMPLATE or not is_string(dtype):
            raise unfit(cursor.encoding, dtype)
        self.head = _Chunk(cursor, self._allowance).template_head(dtype, rows)
        self._variables: tuple[pa.Buffer, pa.Buffer] | None = None

    @property
    def head_bytes(self) -> int:
        """How many bytes of the raw payload the head takes."""
        return self._cursor.position

    @property
    def has_variables(self) -> bool:
        return self._variables is not None

    def take_variables(self, rest: bytes | memoryview) -> None:
        """Takes the variables. rest: what follows the head in the raw payload. Raises `ValueError`."""
        cursor = self._cursor.continued(pa.py_buffer(rest), self._allowance.charge)
        variables = _Chunk(cursor, self._allowance).template_variables()
        cursor.finish()
        self._variables = variables

    def texts(self, chosen: Bits | None) -> pa.Array:
        """Returns the strings of the chosen rows, or of all, after `take_variables`. Raises `ValueError`."""
        assert self._variables is not None
        _ = self.head.codes  # which are kept, and count
        before = self._allowance.charged_bytes
        try:
            return self.head.joined(self._variables, self._allowance.charge, chosen)
        finally:  # strings do not count against those that are asked for later, since they are not kept
            self._allowance.charged_bytes = before


def template_counts(meta: bytes) -> tuple[int, int]:
    """Returns how many templates a chunk of templates has, and the raw bytes of its head.

    Looks at its encoding nodes alone. Raises `ValueError`.
    """
    cursor = Cursor(meta, pa.py_buffer(b""), _ANY_VALUES, charge_nothing)
    if cursor.take(cursor.next_length) != Encoding.TEMPLATE:
        raise ValueError("a chunk of another encoding than its footer states")
    head_bytes, templates = cursor.param, cursor.next_length
    nodes = cursor.children
    while nodes:
        cursor.take(cursor.next_length)
        nodes += cursor.children - 1
    return templates, head_bytes


def nulls(length: int, dtype: pa.DataType) -> pa.Array:
    """Returns the nulls of a column that a fragment left out. Raises `ValueError` if they exceed any chunk's
    limit."""
    size, most = nulls_bytes(length, dtype), most_chunk_bytes(0)
    if size > most:
        raise ValueError(too_large(size, most))
    return pa.nulls(length, dtype)


class _Chunk:
    """A chunk of which one node after the other is decoded."""

    def __init__(self, cursor: Cursor, allowance: Allowance) -> None:
        self.cursor = cursor
        self._allowance = allowance

    def decode(
        self,
        dtype: pa.DataType,
        length: int,
        *,
        keep_dictionary: bool = False,
        keep_templates: bool = False,
    ) -> pa.Array:
        """Decodes the next node, and those below it."""
        cursor = self.cursor
        encoding = cursor.take(length)
        if encoding == Encoding.NULL:
            self._allowance.charge(nulls_bytes(length, dtype))
            return pa.nulls(length, dtype)
        if encoding == Encoding.TEMPLATE and is_string(dtype):
            return self._templates(dtype, length, keep=keep_templates)
        null_count = cursor.null_count
        validity = cursor.validity()
        if encoding == Encoding.DICTIONARY and may_be_coded(dtype):
            return self._dictionary(dtype, length, validity, null_count, keep=keep_dictionary)
        children: list[pa.Array] = []
        if encoding == Encoding.VARLEN and is_binary_like(dtype):
            buffers = self._strings(dtype, length, validity)
        elif encoding == Encoding.LETTERS and is_binary_like(dtype):
            buffers = self._letters(dtype, length, validity)
        elif encoding == Encoding.PLAIN:
            buffers = [validity, self._plain(dtype, length)]
        elif encoding in INT_ENCODINGS:
            width, are_floats = integer_bytes(dtype), pt.is_floating(dtype)
            if width is None:
                raise unfit(encoding, dtype)
            buffers = [validity, cursor.integers().words(width, are_floats)]
        elif encoding == Encoding.DECIMAL and pt.is_float64(dtype):
            buffers = [validity, self._decimals(length)]
        elif encoding == Encoding.LIST and (is_list_like(dtype) or pt.is_map(dtype)):
            offsets, items = self._lists(dtype, length)
            buffers, children = [validity, offsets], [items]
        elif encoding == Encoding.FIXED_LIST and pt.is_fixed_size_list(dtype):
            buffers, children = (
                [validity],
                [self.decode(dtype.value_type, length * dtype.list_size)],
            )
        elif encoding == Encoding.STRUCT and pt.is_struct(dtype):
            buffers, children = [validity], self._fields(dtype, length)
        else:
            raise unfit(encoding, dtype)
        array = pa.Array.from_buffers(dtype, length, buffers, null_count, children=children)
        if encoding != Encoding.LETTERS and _may_hold_others(array):
            array.validate(full=True)
        return array

    def _plain(self, dtype: pa.DataType, length: int) -> pa.Buffer:
        width = self.cursor.param
        if pt.is_boolean(dtype) and not width:
            return self.cursor.buffer((length + 7) // 8)
        if width != fixed_width_bytes(dtype):
            raise ValueError(f"PLAIN values of {width} bytes for type {dtype}")
        return self.cursor.buffer(length * width)

    def _decimals(self, length: int) -> pa.Buffer:
        digits, others = self.cursor.param & 0xFF, self.cursor.param >> 8
        if not 0 <= others <= length:
            raise ValueError("decimals of impossible digits, or more others than values")
        rows, values = self.cursor.buffer(4 * others), self.cursor.buffer(8 * others)
        return self.cursor.child_integers(length).decimals(digits, rows, values)

    def _strings(
        self, dtype: pa.DataType, length: int, validity: pa.Buffer | None
    ) -> list[pa.Buffer | None]:
        data, is_large = self.cursor.buffer(self.cursor.param), is_large_offsets(dtype)
        offsets = self.cursor.child_integers(length).offsets(data.size, is_large)
        return [validity, offsets, data]

    def _letters(
        self, dtype: pa.DataType, length: int, validity: pa.Buffer | None
    ) -> list[pa.Buffer | None]:
        cursor, letters, width = self.cursor, self.cursor.param, self.cursor.width
        if letters < 0:
            raise ValueError("fewer letters than none")
        codes = cursor.buffer(letters // 8 * width + (letters % 8 * width + 7) // 8)
        alphabet = cursor.buffer(1 << width)
        holes, frame = self._frame()
        in_row = int(np.count_nonzero(holes))
        size = letters // in_row * len(holes) if in_row else letters
        self._allowance.charge(size)
        offsets = cursor.child_integers(length).offsets(size, is_large_offsets(dtype))
        text = unpack(codes, alphabet, width, letters, holes, frame, is_string(dtype))
        return [validity, offsets, text]

    def _frame(self) -> tuple[U8, U8]:
        """Takes the node of what letters leave out. Returns for each place whether a letter stands there, and
        the bytes that stand in the others."""
        cursor, size = self.cursor, self.cursor.next_length
        if cursor.take(size) != Encoding.PLAIN or size > MOST_FRAME_BYTES:
            raise ValueError(
                f"a frame of letters that is not PLAIN with up to {MOST_FRAME_BYTES} bytes"
            )
        if size and not cursor.null_count:
            raise ValueError("a frame that has no place for letters")
        holes = ~bits_of(cursor.validity(), 0, size)
        frame = np.frombuffer(self._plain(pa.uint8(), size), dtype=np.uint8)
        return holes.view(np.uint8), frame

    def _templates(self, dtype: pa.DataType, length: int, *, keep: bool) -> pa.Array:
        head = self.template_head(dtype, length)
        variables = self.template_variables()
        if not keep:
            return head.joined(variables, self._allowance.charge)
        rows = head.rows(variables, self._allowance.charge)
        if may_be_large(head.templates, length):
            self._allowance.check_kept(most_text_bytes(rows, head.slots))
        return rows

    def template_variables(self) -> tuple[pa.Buffer, pa.Buffer]:
        """Takes the children of a node of templates that `template_head` leaves: numbers and texts."""
        return self._bytes_child(), self._bytes_child()

    def template_head(self, dtype: pa.DataType, length: int) -> TemplateHead:
        """Takes the validity of a node of templates, and those children that say nothing of variables."""
        cursor = self.cursor
        null_count, head_bytes, start = cursor.null_count, cursor.param, cursor.position
        validity = cursor.validity()
        templates = self._strings_child(dtype)
        codes = cursor.child_integers(length)
        slots = slots_of(templates)
        self._allowance.charge(layout_bytes(len(templates), slots.all_numbers + slots.all_texts))
        alphabets = cursor.child_integers(slots.all_texts).words(8)
        if cursor.position - start != head_bytes:
            raise ValueError("templates and codes take other bytes than their node states")
        return TemplateHead(templates, slots, length, validity, null_count, codes, alphabets)

    def _bytes_child(self) -> pa.Buffer:
        length = self.cursor.next_length
        if self.cursor.take(length) != Encoding.PLAIN or self.cursor.null_count:
            raise ValueError("variables of templates are not PLAIN bytes")
        return self._plain(pa.uint8(), length)

    def _strings_child(self, dtype: pa.DataType) -> pa.Array:
        if self.cursor.next_encoding != Encoding.VARLEN:
            raise ValueError("templates have strings that are not VARLEN")
        strings = self.decode(dtype, self.cursor.next_length)
        if strings.null_count:
            raise ValueError("a null among templates")
        return strings

    def _lists(self, dtype: pa.DataType, length: int) -> tuple[pa.Buffer, pa.Array]:
        counts = self.cursor.child_integers(length)
        elements = self.cursor.next_length
        offsets = counts.offsets(elements, is_large_offsets(dtype))
        if not pt.is_map(dtype):
            return offsets, self.decode(dtype.value_type, elements)
        entries = self.decode(pa.struct([dtype.key_field, dtype.item_field]), elements)
        if entries.null_count or entries.field(0).null_count:
            raise ValueError("a map has an entry or a key that is null")
        return offsets, entries

    def _fields(self, dtype: pa.DataType, length: int) -> list[pa.Array]:
        if self.cursor.children != dtype.num_fields:
            raise ValueError(f"encoding STRUCT has {self.cursor.children} children")
        return [self.decode(field.type, length) for field in dtype.fields]

    def _dictionary(
        self,
        dtype: pa.DataType,
        length: int,
        validity: pa.Buffer | None,
        null_count: int,
        *,
        keep: bool,
    ) -> pa.Array:
        codes = self.cursor.child_integers(length)
        count = self.cursor.next_length
        if count > length:
            raise ValueError("a dictionary with more entries than values")
        if self.cursor.next_encoding == Encoding.DICTIONARY:
            raise ValueError("a dictionary of dictionaries")
        values = self.decode(dtype, count)
        if values.null_count:
            raise ValueError("a null in a dictionary")
        width = fixed_width_bytes(dtype)
        if count and width is not None and width <= _LOOKED_UP_BYTES:
            buffers = [validity, codes.looked_up(values.buffers()[1], count, width)]
            return pa.Array.from_buffers(dtype, length, buffers, null_count)
        keep = keep and may_stay_coded(dtype)
        return self._coded(codes, values, length, validity, null_count, keep=keep)

    def _coded(
        self,
        codes: IntegerStream,
        values: pa.Array,
        length: int,
        validity: pa.Buffer | None,
        null_count: int,
        *,
        keep: bool,
    ) -> pa.Array:
        buffers = [validity, codes.codes(len(values))]
        indices = pa.Array.from_buffers(pa.int32(), length, buffers, null_count)
        array = pa.DictionaryArray.from_arrays(indices, values, safe=False)
        if not keep:
            # The figure is exact, because rough ones of many fields would add up to a refusal.
            self._allowance.charge(_expanded_bytes(array))
            return decoded(array)
        if may_be_large(values, length):
            self._allowance.check_kept(_expanded_bytes(array))
        return array


def _may_hold_others(array: pa.Array) -> bool:
    """Returns whether values have to be looked at to know that they are of their type.

    Callers rely on valid UTF-8, and conditions on decimals that have no more digits than their type.
    """
    dtype = array.type
    if is_string(dtype):
        return not is_ascii(array.buffers()[2])
    return bool(pt.is_decimal(dtype))


def _expanded_bytes(array: pa.Array) -> int:
    """Returns the bytes of a dictionary-coded array's values, each as often as it is used; nothing for
    nulls."""
    return total_bytes(array) - _LENGTH_BYTES * int(array.null_count)


_LOOSE_SHARE: Final = 32
"""One of so many bytes may be other than packed in a payload that is stored without a codec."""
_APART_BYTES: Final = 256 << 10
"""Text of so many bytes is compressed apart from its lengths, since copying it takes longer."""


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
        encode_backed(array) if is_backed else encode_root(array, is_decided=is_decided, seen=seen)
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
    return node.known_bytes or MOST_VALUE_BYTES * node.length
