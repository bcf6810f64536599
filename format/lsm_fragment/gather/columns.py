"""Gathers rows of several sources in merged order: fixed-width values, strings, dictionary codes, templates
and their variables in native code, nested values by `lsm_fragment.arrays.moves` unless their dictionaries are
packed.

Sources are numbered from 0; each has its rows in pieces. `Origins` has the source of each output row, and the
rows of one source keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.buffers import address_of, fixed_width_bytes, valid_mask
from lsm_fragment.arrays.dividing import NO_VARYING_WORDS, VaryingWords, split, varying_words_in
from lsm_fragment.arrays.joining import concat_storage, copied, in_order_of_use, with_nulls_of
from lsm_fragment.arrays.moves import take
from lsm_fragment.arrays.nested_bytes import offset_type, packed, unpacked
from lsm_fragment.arrays.sizes import heaviest_value_bytes, nulls_bytes
from lsm_fragment.arrays.storage import plain
from lsm_fragment.arrays.templated import (
    MOST_GROWTH,
    TEMPLATES_SHARE,
    codes_of,
    have_words,
    joined,
    numbers_of,
    templated,
    templates_of,
    text,
    texts_of,
)
from lsm_fragment.arrays.types import (
    is_binary_like,
    is_large_offsets,
    is_templated,
    may_stay_coded,
    value_type,
)
from lsm_fragment.native import gather as native
from lsm_fragment.origins import Origins

I64 = npt.NDArray[np.int64]

_VALUES, _CODES, _NULLS, _TEMPLATES = range(4)
KIND, ROWS, START = range(3)
"""Places of a piece's fields."""
_OFFSETS: Final = 6
_PACKED_TYPE: Final = pa.large_binary()
HEAVIEST_BYTES: Final = 11
FIELDS: Final = 16
_NO_STRINGS: Final = (0, 0)
_NO_IDS: Final = (0, 0, 0)
_NO_FIELDS: Final = (0, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0, *_NO_IDS)
_CODE_BYTES, _OFFSET_BYTES = 4, 4
_DISTINCT_SHARE: Final = 3
"""A dictionary stays if there are at least this many values to each distinct one."""
_MEMO_SHARE: Final = 4
"""The codes of a piece's dictionary, or of numbered strings, are remembered if these have at most this many
values to each row."""
_MAX_OFFSET_32: Final = 2**31 - 1


class NumberedStrings(NamedTuple):
    """Numbers of the strings in a dictionary: equal for equal strings of one series, whichever dictionaries
    they are in."""

    numbers: npt.NDArray[np.int32]
    series: int
    """From 1 on."""
    stop: int
    """All numbers are below."""


class GatherArray:
    """A storage array of which rows are gathered, with what native code has to know of it."""

    __slots__ = ("_numbered", "array", "dtype", "fields", "kind", "packed", "variables")

    def __init__(
        self,
        array: pa.Array,
        dtype: pa.DataType | None = None,
        *,
        packed: pa.Array | None = None,
        numbered: NumberedStrings | None = None,
        is_weighed: bool = True,
    ) -> None:
        """array: of type null if it stands for nulls of type `dtype`, which take no memory before they are
        gathered. packed: the values of its dictionary as `lsm_fragment.arrays.nested_bytes` makes them if
        they are nested; None if native code need not gather them. numbered: the strings of its dictionary
        or templates, or those that are packed. is_weighed: whether `Pieces.weigh` has to know its
        weight."""
        is_coded = isinstance(array, pa.DictionaryArray)
        dtype = dtype or value_type(array.type)
        if is_coded and not (is_binary_like(dtype) or pt.is_nested(dtype)):
            array = plain(array)
        self.array = array
        self.dtype = dtype
        self.packed = packed
        self._numbered = numbered
        self.kind = _kind(array)
        self.fields: I64 = np.array(self._fields(is_weighed=is_weighed), dtype=np.int64)
        """The fields of `Piece` in `lsm_fragment.native.gather` for a piece without rows."""
        self.variables = self._variables()
        """The same of the numbers and of the texts of a templated array."""

    def copied(self, start: int, rows: int) -> GatherArray:
        """Returns rows of it in memory of their own."""
        array = copied(self.array.slice(start, rows))
        packed = None if self.packed is None else copied(self.packed)
        return GatherArray(array, self.dtype, packed=packed, numbered=self._numbered)

    @property
    def held_bytes(self) -> int:
        """The memory that it takes."""
        return int(self.array.get_total_buffer_size()) + self.beside_bytes

    @property
    def beside_bytes(self) -> int:
        """The memory that it takes beside the array: of packed values, and of numbers of strings."""
        packed = 0 if self.packed is None else int(self.packed.get_total_buffer_size())
        return packed + (0 if self._numbered is None else self._numbered.numbers.nbytes)

    def _fields(self, *, is_weighed: bool) -> tuple[int, ...]:
        array = self.array
        if self.kind == _NULLS:
            return (self.kind, *_NO_FIELDS)
        if self.kind == _TEMPLATES:
            return self._template_fields()
        is_text = is_binary_like(self.dtype)
        if self.kind == _VALUES:
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
        return numbers.__array_interface__["data"][0], series, stop

    def _variables(self) -> tuple[tuple[int, ...], ...]:
        if self.kind != _TEMPLATES:
            return ()
        parts = numbers_of(self.array), texts_of(self.array)
        return tuple(_fields_of_values(part, _OFFSET_BYTES) for part in parts)


def _fields_of_values(array: pa.Array, row_bytes: int) -> tuple[int, ...]:
    """Returns the fields of an array that is not dictionary-coded. row_bytes: of a row, beside its string."""
    places = *_validity(array), *_values(array)
    return (_VALUES, 0, 0, *places, 0, 0, -1, row_bytes, 0, 0, *_NO_IDS)


def _kind(array: pa.Array) -> int:
    if array.null_count == len(array):
        return _NULLS
    if is_templated(array.type):
        return _TEMPLATES
    return _CODES if isinstance(array, pa.DictionaryArray) else _VALUES


class Pieces:
    """Pieces of several sources, which together are the rows to be gathered."""

    __slots__ = ("arrays", "dtype", "fields", "firsts")

    def __init__(
        self, arrays: Sequence[GatherArray], fields: I64, firsts: I64, dtype: pa.DataType
    ) -> None:
        """arrays, fields: the array of each piece, and its fields in `lsm_fragment.native.gather`; those of
        the first source, then those of the next. firsts: each source's first piece."""
        self.arrays = arrays
        self.fields = fields
        self.firsts = firsts
        self.dtype = dtype

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def has_codes(self) -> bool:
        """Whether some rows are dictionary-coded."""
        return self._has(_CODES)

    @property
    def has_values(self) -> bool:
        """Whether some rows are values that are not dictionary-coded."""
        return self._has(_VALUES)

    @property
    def has_templates(self) -> bool:
        """Whether some rows are templates and variables."""
        return self._has(_TEMPLATES)

    @property
    def may_have_nulls(self) -> bool:
        """Whether some rows may be null."""
        return native.may_have_nulls(self.fields)

    def _has(self, kind: int) -> bool:
        return bool(native.kinds(self.fields) >> kind & 1)

    def array(self, number: int) -> pa.Array:
        """Returns the rows of one piece."""
        kind, rows, start = self.fields[number, :3].tolist()
        if kind == _NULLS:
            return pa.nulls(rows, self.dtype)
        return self.arrays[number].array.slice(start, rows)

    def mark_nulls(self) -> None:
        """Has pieces of which every row is null stand for nulls, whatever the other rows of their arrays are,
        so that the result does not depend on how rows were divided into arrays."""
        native.mark_nulls(self.fields)
        if pt.is_nested(self.dtype):
            for number, (kind, rows) in enumerate(self.fields[:, :2].tolist()):
                if kind == _VALUES and self.array(number).null_count == rows:
                    self.fields[number, KIND] = _NULLS

    def weigh(self) -> tuple[int, int]:
        """Returns an upper bound of the pieces' bytes once they are gathered, and one of the bytes that they
        are if decoded or joined."""
        nulls = nulls_bytes(native.rows_of(self.fields, _NULLS), self.dtype) + 1
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
            most += MOST_GROWTH * numbers + texts
        return held + nulls, most + nulls

    def gathered_bytes(self) -> int:
        """Returns an upper bound of the bytes of the rows once they are gathered."""
        held, most = self.weigh()
        return most if self.has_codes and self.has_values else held

    def places_of_templates(self) -> list[int]:
        """Returns the pieces that are templated."""
        places: list[int] = np.flatnonzero(self.fields[:, KIND] == _TEMPLATES).tolist()
        return places

    def variables(self, places: Sequence[int]) -> tuple[Pieces, Pieces]:
        """Returns pieces of the numbers and of the texts. places: of the templated ones."""
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
            if kind == _NULLS:
                continue
            size = self.array(number).nbytes
            held += size
            most += rows * int(self.fields[number, HEAVIEST_BYTES]) if kind == _CODES else size
        return held, most

    @property
    def has_unpacked_codes(self) -> bool:
        """Whether some rows are codes of nested values that native code can't gather."""
        return bool((~self.are_packed() & (self.fields[:, KIND] == _CODES)).any())

    def are_packed(self) -> npt.NDArray[np.bool_]:
        """Returns which pieces are nested values that native code can gather. Shape (pieces,)."""
        is_packed: npt.NDArray[np.bool_] = (self.fields[:, KIND] == _CODES) & (
            self.fields[:, _OFFSETS] != 0
        )
        return is_packed


def pieces_of(
    sources: Sequence[Sequence[pa.Array]], dtype: pa.DataType, *, are_weighed: bool = True
) -> Pieces:
    """Returns the pieces that are whole storage arrays, some of which may be of type null.

    sources: for each source its arrays. are_weighed: see `GatherArray`.
    """
    kept = [[array for array in source if len(array)] for source in sources]
    arrays = [
        GatherArray(array, dtype, is_weighed=are_weighed) for source in kept for array in source
    ]
    fields = np.array([array.fields for array in arrays], dtype=np.int64).reshape(-1, FIELDS)
    fields[:, ROWS] = [len(array.array) for array in arrays]
    firsts = np.cumsum([0, *(len(source) for source in kept[:-1])], dtype=np.int64)
    return Pieces(arrays, fields, firsts, dtype)


def gather(
    pieces: Pieces,
    origins: Origins,
    most_plain_bytes: int = 0,
    *,
    may_code_each: bool = False,
) -> pa.Array:
    """Gathers storage arrays. Returns an array of the pieces' type, dictionary-coded if all pieces are, and
    templated if one is, unless another one alone has too many templates (see `with_few_templates`).

    Then the dictionary has exactly the values in use, in the order of their first use. Strings that hardly
    repeat are returned as values if these take at most `most_plain_bytes`. If only some pieces are coded, and
    are packed, nested values are coded too.

    pieces: those of each source have as many rows as `origins` names.
    may_code_each: whether lists and maps may also come coded over a dictionary that has each row's, which
    moves no values, for callers that number them anyway.
    Raises `pa.ArrowInvalid` where 32-bit offsets do not reach.
    """
    dtype = pieces.dtype
    if not len(origins) or pt.is_null(dtype):
        return pa.nulls(len(origins), dtype)
    if len(pieces) == 1 and pieces.has_values:
        return pieces.array(0)
    if pt.is_nested(dtype):
        return _nested(pieces, origins, may_code_each=may_code_each)
    if pieces.has_templates:
        return _gather_templates(pieces, origins)
    table = _Table(pieces, origins)
    if pt.is_boolean(dtype):
        return table.booleans()
    if is_binary_like(dtype):
        return table.codes(most_plain_bytes) or table.strings()
    return table.fixed()


def used_bytes(pieces: Pieces) -> int | None:
    """Returns the bytes of the distinct strings, or packed values, that dictionary-coded rows have, without
    copying any. None if nested values are not packed."""
    if pt.is_nested(pieces.dtype):
        if pieces.has_unpacked_codes:
            return None
        pieces = Pieces(pieces.arrays, pieces.fields, pieces.firsts, _PACKED_TYPE)
    rows = np.add.reduceat(pieces.fields[:, ROWS], pieces.firsts)
    sources = np.repeat(np.arange(len(rows), dtype=np.uint16), rows)
    return _Table(pieces, Origins(sources, rows, len(rows))).used_bytes()


def with_few_templates(array: pa.Array) -> pa.Array:
    """Returns gathered rows, joined if they have too many templates for their number.

    So it depends on the rows alone, and not on how they were divided into pieces, whether they stay
    templated. `gather` does not do it, because text may take far more memory than what it is joined from:
    callers find out before whether it is too much.
    """
    if is_templated(array.type) and len(templates_of(array)) > _most_templates(len(array)):
        return joined(array)
    return array


def _most_templates(rows: int) -> int:
    return rows // TEMPLATES_SHARE


def _gather_templates(pieces: Pieces, origins: Origins) -> pa.Array:
    """Gathers pieces of which one is templated: the others become so, or all become text if one of them has
    more templates than all rows may have."""
    most = _most_templates(len(origins))
    is_divided = np.isin(pieces.fields[:, KIND], (_TEMPLATES, _NULLS))
    words = NO_VARYING_WORDS if is_divided.all() else _varying_words(pieces)
    divided: list[GatherArray | pa.Array] = []
    for number in range(len(pieces)):
        if is_divided[number]:
            divided.append(pieces.arrays[number])
            continue
        if (array := split(plain(pieces.array(number)), most, words)) is None:
            divided.clear()  # takes as much memory as the text
            joined_rows = [text(pieces.array(number)) for number in range(len(pieces))]
            return _Table(_renewed(pieces, joined_rows), origins).strings()
        divided.append(array)
    pieces = _renewed(pieces, divided)
    places = pieces.places_of_templates()
    parts = pieces.variables(places)
    pieces.fields[places, KIND] = _CODES
    coded = _Table(pieces, origins).codes(0)
    if coded is None:
        return pa.nulls(len(origins), pieces.dtype)
    numbers, texts = (_without_nulls(_Table(part, origins).strings()) for part in parts)
    return templated(coded.dictionary, coded.indices, numbers, texts)


def _varying_words(pieces: Pieces) -> VaryingWords:
    """Returns the words that rows of templated pieces have as variables. It depends on these rows alone."""
    numbers = np.flatnonzero(pieces.fields[:, KIND] == _TEMPLATES).tolist()
    arrays = (pieces.array(number) for number in numbers)
    return varying_words_in(map(_used_templates, arrays))


def _used_templates(array: pa.Array) -> pa.Array:
    """Returns the templates that rows have; none where no template has words."""
    templates = templates_of(array)
    if not have_words(templates):
        return templates[:0]
    codes, valid = codes_of(array), valid_mask(array)
    return take(templates, np.unique(codes if valid is None else codes[valid]))


def _renewed(pieces: Pieces, arrays: Sequence[GatherArray | pa.Array]) -> Pieces:
    """Returns pieces with other arrays, of which those of Arrow have exactly the rows of their pieces."""
    fields, renewed = pieces.fields.copy(), []
    for number, array in enumerate(arrays):
        if not isinstance(array, GatherArray):
            array = GatherArray(array, pieces.dtype)
            rows = int(fields[number, ROWS])
            fields[number] = array.fields
            fields[number, ROWS] = rows
        renewed.append(array)
    return Pieces(renewed, fields, pieces.firsts, pieces.dtype)


def _without_nulls(array: pa.Array) -> pa.Array:
    """Returns binaries that are empty where they were null."""
    return pa.Array.from_buffers(array.type, len(array), [None, *array.buffers()[1:]], 0)


def _nested(pieces: Pieces, origins: Origins, *, may_code_each: bool) -> pa.Array:
    if (coded := _nested_codes(pieces, origins)) is not None:
        return coded
    array = concat_storage([pieces.array(number) for number in range(len(pieces))])
    if len(pieces.firsts) > 1:
        positions = positions_by_source(origins.sources)
        if may_code_each and may_stay_coded(array.type):
            return _each_in(array, pa.array(positions))
        array = take(array, positions)
    return in_order_of_use(array) if pt.is_dictionary(array.type) else array


def _each_in(values: pa.Array, positions: pa.Array) -> pa.Array:
    """Dictionary-codes values in another order over a dictionary that has all of them in theirs."""
    indices = pa.array(np.arange(len(values), dtype=np.int32))
    indices = with_nulls_of(values, indices).take(positions)
    return pa.DictionaryArray.from_arrays(indices, values, safe=False)


def _nested_codes(pieces: Pieces, origins: Origins) -> pa.Array | None:
    """Gathers nested values as codes over one dictionary; None if no piece is dictionary-coded, or one is not
    packed."""
    if not pieces.has_codes or pieces.has_unpacked_codes:
        return None
    if pieces.has_values:
        values = np.flatnonzero(pieces.fields[:, KIND] == _VALUES).tolist()
        arrays = list(pieces.arrays)
        for number in values:
            arrays[number] = _each_coded(pieces.array(number))
        fields = pieces.fields.copy()
        fields[values] = [arrays[number].fields for number in values]
        fields[values, ROWS] = pieces.fields[values, ROWS]
        pieces = Pieces(arrays, fields, pieces.firsts, pieces.dtype)
    strings = Pieces(pieces.arrays, pieces.fields, pieces.firsts, _PACKED_TYPE)
    coded = _Table(strings, origins).codes(0)
    if coded is None:
        return None
    values = unpacked(coded.dictionary, pieces.dtype)
    return pa.DictionaryArray.from_arrays(coded.indices, values, safe=False)


def _each_coded(array: pa.Array) -> GatherArray:
    """Dictionary-codes nested values over a dictionary that has each row's."""
    indices = with_nulls_of(array, pa.array(np.arange(len(array), dtype=np.int32)))
    coded = pa.DictionaryArray.from_arrays(indices, array, safe=False)
    return GatherArray(coded, packed=packed(array), is_weighed=False)


def gather_arrays(sources: Sequence[Sequence[pa.Array]], origins: Origins) -> pa.Array:
    """Gathers whole arrays of one type, dictionary-coded or not; like `gather`. There must be one."""
    dtype = next(value_type(array.type) for source in sources for array in source)
    return gather(pieces_of(sources, dtype, are_weighed=False), origins)


class Span(NamedTuple):
    """Consecutive rows of some columns. Other rows of the same arrays may be in other spans."""

    columns: Sequence[GatherArray]
    start: int
    rows: int


def pieces_of_spans(sources: Sequence[Sequence[Span]]) -> list[Pieces]:
    """Returns the pieces of each column. sources: for each source its spans, none of which is empty; there
    must be one."""
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


def positions_by_source(origins: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """Returns each row's position among the sources' rows laid end to end."""
    by_source = np.argsort(origins, kind="stable")
    positions = np.empty(len(origins), dtype=np.int64)
    positions[by_source] = np.arange(len(origins))
    return positions


class _Table:
    """The pieces of all sources, as native code takes them. It keeps their memory alive."""

    def __init__(self, pieces: Pieces, origins: Origins) -> None:
        self._held = pieces.arrays
        self._rows = len(origins)
        self._dtype = pieces.dtype
        self._offset_type = offset_type(pieces.dtype)
        self._pieces = pieces.fields
        if not native.agrees(pieces.fields, pieces.firsts, origins.counts):
            raise ValueError("sources have other rows than the order names")
        # What native code walks along.
        self._walked = pieces.fields, pieces.firsts, origins.sources, origins.has_short_runs
        self._validity, self._nulls = None, 0
        if pieces.may_have_nulls:
            bits = self._bitmap()
            self._nulls = native.validity(*self._walked, bits)
            if self._nulls:
                self._validity = pa.py_buffer(bits)

    def fixed(self) -> pa.Array:
        """Gathers values of fixed width."""
        width = fixed_width_bytes(self._dtype)
        assert width is not None
        out = np.empty(self._rows * width, dtype=np.uint8)
        if width:
            native.fixed(*self._walked, width, out)
        return self._array([pa.py_buffer(out)])

    def booleans(self) -> pa.Array:
        out = self._bitmap()
        native.bits(*self._walked, out)
        return self._array([pa.py_buffer(out)])

    def strings(self) -> pa.Array:
        """Gathers strings as values, whether the pieces are dictionary-coded or not."""
        placed, total = self._placed
        self._check_total(total)
        out = np.empty(total, dtype=np.uint8)
        native.strings(*self._walked, placed, out)
        return self._array([pa.py_buffer(placed), pa.py_buffer(out)])

    def codes(self, most_plain_bytes: int) -> pa.Array | None:
        """Gathers codes over one dictionary; None if a piece is not dictionary-coded, or if values hardly
        repeat and take at most `most_plain_bytes`."""
        kinds = self._pieces[:, 0]
        if not (kinds == _CODES).any() or (kinds == _VALUES).any():
            return None
        present = self._rows - self._nulls
        if not most_plain_bytes:
            return self._codes(present)
        coded = self._codes(present // _DISTINCT_SHARE)
        if coded is None and self._placed[1] > most_plain_bytes:
            return self._codes(present)
        return coded

    def used_bytes(self) -> int:
        """Returns the bytes of the dictionary's strings. All pieces must be dictionary-coded, or nulls."""
        found = self._coded(self._rows - self._nulls)
        if found is None:
            return 0
        _, used = found
        return native.used_offsets(self._pieces, used, np.empty(len(used) + 1, self._offset_type))

    def _codes(self, most: int) -> pa.Array | None:
        """Gathers codes over one dictionary of at most `most` values; None if there are more."""
        if (found := self._coded(most)) is None:
            return None
        codes, used = found
        indices = pa.Array.from_buffers(
            pa.int32(), self._rows, [self._validity, pa.py_buffer(codes)], self._nulls
        )
        return pa.DictionaryArray.from_arrays(indices, self._used(used), safe=False)

    def _coded(self, most: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]] | None:
        """Returns the rows' codes, and for each code a piece and the number of the string in its dictionary;
        None for more than `most` codes."""
        rows = self._rows
        memo_size, distinct, are_sure = native.assign_memos(self._pieces, _MEMO_SHARE, rows)
        most = min(most, distinct)
        if not most:
            return None
        slots = 0 if are_sure else 1 << (2 * most).bit_length()
        codes = np.zeros(rows, dtype=np.int32)
        used = np.empty((most, 2), dtype=np.int64)
        count = native.codes(
            *self._walked,
            np.empty(0, dtype=self._offset_type),
            most,
            np.zeros(slots, dtype=np.uint64),
            np.full(memo_size, -1, dtype=np.int32),
            codes,
            used,
        )
        return None if count < 0 else (codes, used[:count])

    @cached_property
    def _placed(self) -> tuple[npt.NDArray[Any], int]:
        """Returns the offsets of the gathered strings, and their total, which the offsets may not hold."""
        placed = np.empty(self._rows + 1, dtype=self._offset_type)
        return placed, native.offsets(*self._walked, placed)

    def _used(self, used: npt.NDArray[np.int64]) -> pa.Array:
        """Returns the strings that pieces and numbers in their dictionaries name."""
        placed = np.empty(len(used) + 1, dtype=self._offset_type)
        total = native.used_offsets(self._pieces, used, placed)
        self._check_total(total)
        out = np.empty(total, dtype=np.uint8)
        native.used_strings(self._pieces, used, placed, out)
        return pa.Array.from_buffers(
            self._dtype, len(used), [None, pa.py_buffer(placed), pa.py_buffer(out)], 0
        )

    def _array(self, buffers: list[pa.Buffer]) -> pa.Array:
        return pa.Array.from_buffers(
            self._dtype, self._rows, [self._validity, *buffers], self._nulls
        )

    def _bitmap(self) -> npt.NDArray[np.uint8]:
        return np.zeros((self._rows + 7) // 8, dtype=np.uint8)

    def _check_total(self, total: int) -> None:
        if self._offset_type.itemsize == 4 and total > _MAX_OFFSET_32:
            raise pa.ArrowInvalid(f"{total} bytes of strings exceed 32-bit offsets")


def _values(array: pa.Array) -> tuple[int, int]:
    """Returns the addresses of an array's values and offsets."""
    if is_binary_like(array.type):
        _, offsets, data = array.buffers()
        width = 8 if is_large_offsets(array.type) else 4
        return address_of(data), address_of(offsets) + width * array.offset
    width = fixed_width_bytes(array.type) or 0
    return address_of(array.buffers()[1]) + width * array.offset, 0


def _weights(values: pa.Array, memory: tuple[int, int]) -> tuple[int, int]:
    """Returns the bytes of a dictionary's heaviest value, and those that it has in memory. memory: where
    it is if it has strings."""
    if not is_binary_like(values.type) or values.null_count or not len(values):
        return heaviest_value_bytes(values), int(values.nbytes)
    is_large = is_large_offsets(values.type)
    longest, size = native.string_weights(memory[1], len(values), is_large)
    return longest + _OFFSET_BYTES, size + (8 if is_large else 4) * len(values)


def _validity(array: pa.Array) -> tuple[int, int]:
    if not array.null_count:
        return 0, array.offset  # booleans use the offset in bits, too
    return array.buffers()[0].address, array.offset
