"""Describes the arrays that rows are gathered from: pieces of sources, in the form that the loops take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.buffers import address_of, address_of_values, fixed_width_bytes
from lsm_fragment.arrays.joining import copied
from lsm_fragment.arrays.nested_bytes import offset_type
from lsm_fragment.arrays.sizes import heaviest_value_bytes, nulls_bytes
from lsm_fragment.arrays.storage import plain
from lsm_fragment.arrays.templated import MAX_GROWTH, numbers_of, text, texts_of
from lsm_fragment.arrays.types import (
    is_binary_like,
    is_large_offsets,
    is_templated,
    is_worded,
    value_type,
)
from lsm_fragment.arrays.worded import WordedRows
from lsm_fragment.native.gather import rows as native

I64 = npt.NDArray[np.int64]

VALUES, CODES, NULLS, TEMPLATES = range(4)
KIND, ROWS, START = range(3)
"""Indices of the first fields of a piece."""
_OFFSETS: Final = 6
PACKED_TYPE: Final = pa.large_binary()
HEAVIEST_BYTES: Final = 11
FIELDS: Final = 16
_NO_STRINGS: Final = (0, 0)
_NO_IDS: Final = (0, 0, 0)
_NO_FIELDS: Final = (0, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0, *_NO_IDS)
_CODE_BYTES, _OFFSET_BYTES = 4, 4
_NO_NUMBERS: Final = np.empty(0, dtype=np.int32)
DISTINCT_DIVISOR: Final = 3
"""Keep a dictionary if there are at least this many values per distinct one."""


class NumberedStrings(NamedTuple):
    """Numbers of the strings in a dictionary: equal for equal strings of one series, across dictionaries."""

    numbers: npt.NDArray[np.int32]
    series: int
    """Number of the series, from 1 on; negative for pieces of one dictionary, whose codes are the numbers."""
    stop: int
    """Upper bound of the numbers, exclusive."""

    @staticmethod
    def shared(series: int) -> NumberedStrings:
        """Numbers the strings of a dictionary that several pieces share. series: from 1 on."""
        return NumberedStrings(_NO_NUMBERS, -series, 0)


class GatherArray:
    """A storage array to gather rows from, with the fields that native code needs."""

    __slots__ = ("_numbered", "array", "dtype", "fields", "kind", "packed", "variables", "words")

    def __init__(
        self,
        array: pa.Array,
        dtype: pa.DataType | None = None,
        *,
        packed: pa.Array | None = None,
        numbered: NumberedStrings | None = None,
        words: WordedRows | None = None,
        is_weighed: bool = True,
    ) -> None:
        """array: of type null for nulls of type `dtype`, which take no memory before they are gathered.
        packed: the values of its dictionary as byte strings (`lsm_fragment.arrays.nested_bytes`) if they are
        nested; None if native code does not gather them. numbered: the strings of its dictionary or
        templates, or the packed ones. words: the rows, if the array is worded. is_weighed: whether
        `Pieces.weigh` needs its weights."""
        is_coded = isinstance(array, pa.DictionaryArray)
        dtype = dtype or value_type(array.type)
        if is_coded and not (is_binary_like(dtype) or pt.is_nested(dtype)):
            array = plain(array)
        self.array = array
        self.dtype = dtype
        self.packed = packed
        self._numbered = numbered
        self.kind = _kind(array)
        self.words = None if self.kind == NULLS else words
        """The rows of a worded array; its fields are those of its text, without the bytes."""
        self.fields: I64 = np.array(self._fields(is_weighed=is_weighed), dtype=np.int64)
        """The fields of `Piece` in `lsm_fragment.native.gather.rows`, for a piece without rows."""
        self.variables = self._variables()
        """`fields` for the two variable arrays of a templated array."""

    def part(self, start: int, rows: int) -> pa.Array:
        """Returns some rows, which stand by themselves."""
        array = self.array.slice(start, rows)
        return array if self.words is None else self.words.with_words(array)

    def copied(self, start: int, rows: int) -> GatherArray:
        """Returns some rows in memory of their own."""
        array = copied(self.array.slice(start, rows))
        packed = None if self.packed is None else copied(self.packed)
        words = None if self.words is None else self.words.copied(array, start)
        return GatherArray(array, self.dtype, packed=packed, numbered=self._numbered, words=words)

    @property
    def held_bytes(self) -> int:
        """The memory of the array, and of the values beside it."""
        return int(self.array.get_total_buffer_size()) + self.beside_bytes

    @property
    def beside_bytes(self) -> int:
        """The memory beside the array: packed values, numbers of strings, offsets of words."""
        packed = 0 if self.packed is None else int(self.packed.get_total_buffer_size())
        packed += 0 if self.words is None else self.words.nbytes
        return packed + (0 if self._numbered is None else self._numbered.numbers.nbytes)

    def _fields(self, *, is_weighed: bool) -> tuple[int, ...]:
        array = self.array
        if self.kind == NULLS:
            return (self.kind, *_NO_FIELDS)
        if self.kind == TEMPLATES:
            return self._template_fields()
        is_text = is_binary_like(self.dtype)
        if self.words is not None:
            return _fields_of(array, (0, self.words.text_address), _OFFSET_BYTES)
        if self.kind == VALUES:
            if pt.is_nested(self.dtype):
                return (self.kind, *_NO_FIELDS)
            width = fixed_width_bytes(self.dtype) or 0
            beside = (8 if is_large_offsets(self.dtype) else 4) if is_text else width
            return _fields_of_values(array, beside)
        codes, values = array.indices, array.dictionary
        at = codes.buffers()[1].address + _CODE_BYTES * codes.offset
        strings = values if is_text else self.packed
        memory = _NO_STRINGS if strings is None else _values(strings)
        weighed = values if strings is None else strings
        weights = _CODE_BYTES, *(_weights(weighed, memory) if is_weighed else (0, 0))
        places = *_validity(codes), *memory, at, len(values)
        return (self.kind, 0, 0, *places, -1, *weights, *self._ids())

    def _template_fields(self) -> tuple[int, ...]:
        coded = self.array.field(0)
        codes, templates = coded.indices, coded.dictionary
        weights = _CODE_BYTES, 0, templates.nbytes
        at = codes.buffers()[1].address + _CODE_BYTES * codes.offset
        places = *_validity(self.array), *_values(templates), at, len(templates)
        return (self.kind, 0, 0, *places, -1, *weights, *self._ids())

    def _ids(self) -> tuple[int, int, int]:
        if self._numbered is None:
            return _NO_IDS
        numbers, series, stop = self._numbered
        return address_of_values(numbers), series, stop

    def _variables(self) -> tuple[tuple[int, ...], ...]:
        if self.kind != TEMPLATES:
            return ()
        parts = numbers_of(self.array), texts_of(self.array)
        return tuple(_fields_of_values(part, _OFFSET_BYTES) for part in parts)


def _fields_of_values(array: pa.Array, row_bytes: int) -> tuple[int, ...]:
    """Returns the fields of an array that is not dictionary-coded. row_bytes: of a row beside its string."""
    return _fields_of(array, _values(array), row_bytes)


def _fields_of(array: pa.Array, values: tuple[int, int], row_bytes: int) -> tuple[int, ...]:
    """values: the addresses of values and offsets."""
    return (VALUES, 0, 0, *_validity(array), *values, 0, 0, -1, row_bytes, 0, 0, *_NO_IDS)


def _kind(array: pa.Array) -> int:
    if array.null_count == len(array):
        return NULLS
    if is_templated(array.type):
        return TEMPLATES
    return CODES if isinstance(array, pa.DictionaryArray) else VALUES


class Pieces:
    """The pieces of several sources, which together are the rows to gather."""

    __slots__ = ("arrays", "dtype", "fields", "firsts")

    def __init__(
        self, arrays: Sequence[GatherArray], fields: I64, firsts: I64, dtype: pa.DataType
    ) -> None:
        """arrays, fields: the array of each piece, and its fields in `lsm_fragment.native.gather.rows`,
        ordered by source. firsts: each source's first piece."""
        self.arrays = arrays
        self.fields = fields
        self.firsts = firsts
        self.dtype = dtype

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def has_codes(self) -> bool:
        """Whether any piece is dictionary-coded."""
        return self._has(CODES)

    @property
    def has_values(self) -> bool:
        """Whether any piece has plain values."""
        return self._has(VALUES)

    @property
    def has_templates(self) -> bool:
        """Whether any piece is templated."""
        return self._has(TEMPLATES)

    @property
    def has_words(self) -> bool:
        """Whether any piece is of a worded array."""
        return any(array.words is not None for array in self.arrays)

    @property
    def may_have_nulls(self) -> bool:
        """Whether any row may be null."""
        return native.may_have_nulls(self.fields)

    def _has(self, kind: int) -> bool:
        return bool(native.kinds(self.fields) >> kind & 1)

    def array(self, number: int) -> pa.Array:
        """Returns the rows of one piece; the strings of a worded one."""
        kind, rows, start = self.fields[number, :3].tolist()
        if kind == NULLS:
            return pa.nulls(rows, self.dtype)
        array = self.arrays[number].part(start, rows)
        return text(array) if is_worded(array.type) else array

    def mark_nulls(self) -> None:
        """Marks all-null pieces as NULLS, so that the result does not depend on how rows were divided into
        arrays."""
        native.mark_nulls(self.fields)
        if pt.is_nested(self.dtype):
            for number, (kind, rows) in enumerate(self.fields[:, :2].tolist()):
                if kind == VALUES and self.array(number).null_count == rows:
                    self.fields[number, KIND] = NULLS

    def weigh(self) -> tuple[int, int]:
        """Returns an upper bound of the pieces' bytes after gathering, and one of their bytes decoded or
        joined."""
        nulls = nulls_bytes(native.rows_of(self.fields, NULLS), self.dtype) + 1
        if pt.is_nested(self.dtype):
            held, most = self._weigh_nested()
        else:
            held, most = native.weigh(self.fields, np.empty(0, dtype=offset_type(self.dtype)))
        if self.has_templates:
            places, like = self.places_of_templates(), np.empty(0, dtype=np.int32)
            numbers, texts = (
                native.weigh(part.fields[places], like)[0] for part in self.variables(places)
            )
            held += numbers + texts
            most += MAX_GROWTH * numbers + texts
        return held + nulls, most + nulls

    def gathered_bytes(self) -> int:
        """Returns an upper bound of the bytes of the rows after gathering."""
        held, most = self.weigh()
        return most if self.has_codes and self.has_values else held

    def places_of_templates(self) -> list[int]:
        """Returns the indices of the templated pieces."""
        places: list[int] = np.flatnonzero(self.fields[:, KIND] == TEMPLATES).tolist()
        return places

    def variables(self, places: Sequence[int]) -> tuple[Pieces, Pieces]:
        """Returns the pieces of the numbers and of the texts. places: the templated pieces."""
        numbers, texts = (
            Pieces(self.arrays, self.fields.copy(), self.firsts, pa.binary()) for _ in range(2)
        )
        for which, part in enumerate((numbers, texts)):
            for number in places:
                part.fields[number] = self.arrays[number].variables[which]
            part.fields[places, ROWS : START + 1] = self.fields[places, ROWS : START + 1]
        return numbers, texts

    def _weigh_nested(self) -> tuple[int, int]:
        is_packed = self.are_packed()
        held, most = native.weigh(self.fields[is_packed], np.empty(0, dtype=np.int64))
        for number in np.flatnonzero(~is_packed).tolist():
            kind, rows = self.fields[number, :2].tolist()
            if kind == NULLS:
                continue
            size = self.array(number).nbytes
            held += size
            most += rows * int(self.fields[number, HEAVIEST_BYTES]) if kind == CODES else size
        return held, most

    @property
    def has_unpacked_codes(self) -> bool:
        """Whether any piece has codes of nested values that native code cannot gather."""
        return bool((~self.are_packed() & (self.fields[:, KIND] == CODES)).any())

    def are_packed(self) -> npt.NDArray[np.bool_]:
        """Returns which pieces have nested values that native code can gather. Shape (pieces,)."""
        is_packed: npt.NDArray[np.bool_] = (self.fields[:, KIND] == CODES) & (
            self.fields[:, _OFFSETS] != 0
        )
        return is_packed


def pieces_of(
    sources: Sequence[Sequence[pa.Array]], dtype: pa.DataType, *, are_weighed: bool = True
) -> Pieces:
    """Makes pieces of whole storage arrays, some of which may be of type null.

    sources: the arrays of each source. are_weighed: see `GatherArray`.
    """
    kept = [[array for array in source if len(array)] for source in sources]
    arrays = [
        GatherArray(array, dtype, is_weighed=are_weighed) for source in kept for array in source
    ]
    fields = np.array([array.fields for array in arrays], dtype=np.int64).reshape(-1, FIELDS)
    fields[:, ROWS] = [len(array.array) for array in arrays]
    firsts = np.cumsum([0, *(len(source) for source in kept[:-1])], dtype=np.int64)
    return Pieces(arrays, fields, firsts, dtype)


def renewed(pieces: Pieces, arrays: Sequence[pa.Array]) -> Pieces:
    """Replaces the arrays by others, of which each covers exactly its piece's rows."""
    renewed = [GatherArray(array, pieces.dtype) for array in arrays]
    fields = np.array([array.fields for array in renewed], dtype=np.int64)
    fields[:, ROWS] = pieces.fields[:, ROWS]
    return Pieces(renewed, fields, pieces.firsts, pieces.dtype)


def replace_by(
    arrays: list[GatherArray], fields: I64, numbers: Sequence[int], array: GatherArray
) -> None:
    """Replaces some pieces by one array, which has their rows end to end."""
    rows = fields[numbers, ROWS]
    fields[numbers] = array.fields
    fields[numbers, ROWS] = rows
    fields[numbers, START] = np.cumsum(rows) - rows
    for number in numbers:
        arrays[number] = array


class Span(NamedTuple):
    """Consecutive rows of some columns. Spans may share arrays."""

    columns: Sequence[GatherArray]
    start: int
    rows: int


def pieces_of_spans(sources: Sequence[Sequence[Span]]) -> list[Pieces]:
    """Makes the pieces of each column. sources: the spans of each source, none of them empty; at least one
    span."""
    spans = [span for source in sources for span in source]
    firsts = np.cumsum([0, *(len(source) for source in sources[:-1])], dtype=np.int64)
    places = np.array([(span.rows, span.start) for span in spans], dtype=np.int64)
    columns = []
    for column, first in enumerate(spans[0].columns):
        arrays = [span.columns[column] for span in spans]
        fields = np.concatenate([array.fields for array in arrays]).reshape(-1, FIELDS)
        fields[:, ROWS : START + 1] = places
        pieces = Pieces(arrays, fields, firsts, first.dtype)
        pieces.mark_nulls()
        columns.append(pieces)
    return columns


def _values(array: pa.Array) -> tuple[int, int]:
    """Returns the addresses of an array's values and offsets."""
    if is_binary_like(array.type):
        _, offsets, data = array.buffers()
        width = 8 if is_large_offsets(array.type) else 4
        return address_of(data), address_of(offsets) + width * array.offset
    width = fixed_width_bytes(array.type) or 0
    return address_of(array.buffers()[1]) + width * array.offset, 0


def _weights(values: pa.Array, memory: tuple[int, int]) -> tuple[int, int]:
    """Returns the bytes of a dictionary's heaviest value, and of all its values. memory: the addresses of its
    strings, if it has strings."""
    if not is_binary_like(values.type) or values.null_count or not len(values):
        return heaviest_value_bytes(values), int(values.nbytes)
    is_large = is_large_offsets(values.type)
    longest, size = native.string_weights(memory[1], len(values), is_large)
    return longest + _OFFSET_BYTES, size + (8 if is_large else 4) * len(values)


def _validity(array: pa.Array) -> tuple[int, int]:
    if not array.null_count:
        return 0, array.offset  # the bit offset also applies to the values of booleans
    return array.buffers()[0].address, array.offset
