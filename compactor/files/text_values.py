"""Converts values in text files to values of any type.

JSON has booleans, numbers, strings, lists and objects, of which `json_arrays` makes arrays. Other values have
these forms, in files read and written:

- dates, times and timestamps are ISO 8601, with years beyond 0000 to 9999 as in `lsm_fragment.arrays.times`.
  For a timestamp column of a table, a text without a zone is UTC; for one without a zone, a text with a zone
  gives the wall time in UTC, unless `keeps_zones`, as in pipelines: then it does not fit;
- durations are integers in the type's unit; decimals are strings or numbers, never rounded, and
  only strings where the scale is negative or above the precision;
- binaries are base64; maps are lists of {"key": ..., "value": ...};
- columns of the type arrow.json, and such fields of structs, keep their JSON; lists of arrow.json are lists
  of strings;
- in a CSV cell, lists, structs and maps are JSON text; a value of arrow.json is its own text, or a JSON
  string if that does not look like JSON; within a struct it is a string.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as pt

from compactor.files.base64_arrays import base64_decode
from compactor.files.json_arrays import JsonArrays
from compactor.files.json_mistakes import Mistake, cause_in
from compactor.files.jsontext import json_of_cells
from compactor.files.number_text import narrowed, read_floats, read_integers
from lsm_fragment import compute as pc
from lsm_fragment.arrays.buffers import binary_parts
from lsm_fragment.arrays.cast import cast_storage
from lsm_fragment.arrays.decimals import decimals_of, has_odd_scale
from lsm_fragment.arrays.joining import concat_logical
from lsm_fragment.arrays.moves import list_parts
from lsm_fragment.arrays.nested import build_list, build_struct, null_mask
from lsm_fragment.arrays.storage import to_logical
from lsm_fragment.arrays.times import times_of
from lsm_fragment.arrays.types import is_bytes, is_string, storage_type

_ZONED = r"[0-9][T ][0-9].*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"


def from_wire(array: pa.Array, dtype: pa.DataType, *, keeps_zones: bool = False) -> pa.Array:
    """Converts values as `JsonArrays` makes them, unless they are converted. Raises one of `PROBLEMS` if one
    does not fit."""
    if array.type == dtype:
        return array
    if keeps_zones and pt.is_timestamp(dtype) and dtype.tz is None and is_string(array.type):
        return _local_times(array, dtype)
    return to_logical(_as_storage(array, storage_type(dtype)), dtype)


class CellReader:
    """Converts CSV cells, whose numbers have a decimal point or comma. Methods raise one of `PROBLEMS` if a
    cell does not fit."""

    def __init__(self, decimal: str = ".", *, keeps_zones: bool = False) -> None:
        self._has_comma = decimal == ","
        self._keeps_zones = keeps_zones

    def values(self, cells: pa.Array, dtype: pa.DataType) -> pa.Array:
        """Converts cells (strings) to `dtype`."""
        stored = storage_type(dtype)
        if pt.is_nested(stored):
            return to_logical(from_json_texts(cells, stored), dtype)
        if isinstance(dtype, pa.JsonType):
            return from_wire(json_of_cells(cells), dtype)
        if is_string(stored) or is_bytes(stored):
            return from_wire(cells, dtype)
        cells = pc.ascii_trim_whitespace(cells)
        if pt.is_duration(stored):
            return from_wire(read_scalars(cells, pa.int64()), dtype)
        if pt.is_integer(stored) or pt.is_floating(stored) or pt.is_boolean(stored):
            return to_logical(self.scalars(cells, stored), dtype)
        if self._has_comma and pt.is_decimal(stored):
            cells = _swapped(cells)
        return from_wire(cells, dtype, keeps_zones=self._keeps_zones)

    def scalars(self, texts: pa.Array, dtype: pa.DataType) -> pa.Array:
        """As `read_scalars`, with this decimal mark."""
        if self._has_comma and pt.is_floating(dtype):
            texts = _swapped(texts)
        return read_scalars(texts, dtype)


def _swapped(texts: pa.Array) -> pa.Array:
    """Makes numbers with a decimal comma plain, and those with a point no numbers."""
    points = pc.replace_substring(texts, ".", "!")
    return pc.replace_substring(points, ",", ".")


def read_scalars(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Parses texts as numbers, booleans, dates or timestamps, for CSV cells and for type inference.

    Raises one of `PROBLEMS` for a text that is not exactly a value of the type.
    """
    if pt.is_integer(dtype):
        return read_integers(texts, dtype)
    if pt.is_floating(dtype):
        return read_floats(texts, dtype)
    if pt.is_timestamp(dtype) or pt.is_date(dtype):
        return times_of(texts, dtype)
    values = texts.cast(dtype)
    if pt.is_boolean(dtype) and pc.any(pc.less(pc.binary_length(texts), len("true"))).as_py():
        raise ValueError("neither true nor false")  # Arrow also accepts 1 and 0.
    return values


def from_json_texts(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Converts JSON values (strings) to `dtype`. Raises one of `PROBLEMS` if one does not fit."""
    arrays = JsonArrays()
    node = arrays.declare("v", dtype)
    arrays.rows.seal()
    texts = pc.replace_substring(texts.fill_null("null"), "\n", "\t")  # blanks as good, on one line
    rows = pc.binary_join_element_wise('{"v":', texts, "}\n", "")
    offsets, data = binary_parts(rows)
    lines, at, found = bytes(data[int(offsets[0]) : int(offsets[-1])]), 0, []
    while at < len(lines):
        arrays.rows.clear()
        at = arrays.rows.parse(lines, at)
        found.append(arrays.array(node))
        if (mistake := arrays.rows.mistake()) is not None:
            line = lines[at : lines.index(b"\n", at)]
            cause = cause_in(pa.field("v", dtype), Mistake(*mistake), line, arrays)
            raise ValueError(cause or "it is not JSON")
        if arrays.misfits:
            raise ValueError(arrays.misfits[0].cause)
    found = [from_wire(array, dtype) for array in found]
    return concat_logical(found) if found else pa.nulls(0, dtype)


def _as_storage(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    if array.type == dtype:
        return array
    if pt.is_null(array.type):
        return pa.nulls(len(array), dtype)
    if pt.is_null(dtype):
        return _as_nulls(array)
    if pt.is_temporal(array.type):
        return array.cast(dtype)
    if pt.is_struct(dtype):
        return _as_struct(array, dtype)
    if pt.is_nested(dtype):
        return _as_list(array, dtype)
    if is_bytes(dtype):
        return base64_decode(array).cast(pa.binary()).cast(dtype)
    if pt.is_timestamp(dtype):
        return _as_timestamp(array, dtype)
    if pt.is_time(dtype):
        moment = pc.binary_join_element_wise("1970-01-01T", array, "")
        return moment.cast(pa.timestamp(dtype.unit)).cast(dtype)
    if pt.is_date(dtype):
        return times_of(array, dtype)
    if pt.is_floating(dtype):
        return narrowed(array, dtype)
    if pt.is_decimal(dtype) and has_odd_scale(dtype):
        return decimals_of(array, dtype)
    return array.cast(dtype)


def _as_nulls(array: pa.Array) -> pa.Array:
    if array.null_count < len(array):
        raise ValueError("it is not null")
    return pa.nulls(len(array))


def _as_struct(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    children = dict(zip(array.type.names, array.flatten(), strict=True))
    none = pa.nulls(len(array))
    columns = [_as_storage(children.get(field.name, none), field.type) for field in dtype.fields]
    return build_struct(dtype, len(array), columns, null_mask(array))


def _as_list(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    counts, items = list_parts(array)
    if pt.is_map(dtype):
        entry = pa.struct([dtype.key_field, dtype.item_field])
        keys, values = items.flatten()
        if keys.null_count:
            raise ValueError("a map's key is null")
        pairs = [_as_storage(keys, dtype.key_type), _as_storage(values, dtype.item_type)]
        entries = pa.StructArray.from_arrays(pairs, fields=entry.fields)
        return build_list(dtype, counts, entries, null_mask(array))
    items = _as_storage(items, dtype.value_type)
    if pt.is_fixed_size_list(dtype):
        lists = build_list(pa.list_(dtype.value_field), counts, items, null_mask(array))
        return cast_storage(lists, dtype)
    return build_list(dtype, counts, items, null_mask(array))


def _as_timestamp(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    try:
        return times_of(texts, dtype)
    except pa.ArrowInvalid:
        # Some texts lack a zone that the type has, or the other way round.
        zoned = pc.match_substring_regex(texts, _ZONED)
        utc = pa.timestamp(dtype.unit, "UTC")
        with_zone = times_of(pc.if_else(zoned, texts, None), utc)
        without = times_of(pc.if_else(zoned, None, texts), pa.timestamp(dtype.unit))
        return pc.coalesce(with_zone, pc.assume_timezone(without, "UTC")).cast(dtype)


def _local_times(texts: pa.Array, dtype: pa.DataType) -> pa.Array:
    try:
        return times_of(texts, dtype)
    except pa.ArrowInvalid:
        if not pc.any(pc.match_substring_regex(texts, _ZONED)).as_py():
            raise
    raise ValueError("it has a zone, which TIMESTAMPTZ takes")
