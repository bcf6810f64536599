"""Gathers lists, maps and structs: by codes of byte strings if pieces are coded and packed, else by moves."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.joining import concat_storage, in_order_of_use, with_nulls_of
from lsm_fragment.arrays.moves import take
from lsm_fragment.arrays.nested_bytes import packed, unpacked
from lsm_fragment.arrays.types import may_stay_coded
from lsm_fragment.gather.origins import Origins
from lsm_fragment.gather.pieces import (
    KIND,
    PACKED_TYPE,
    VALUES,
    GatherArray,
    Pieces,
    replace_by,
)
from lsm_fragment.gather.table import Table


def nested(pieces: Pieces, origins: Origins, *, may_code_each: bool) -> pa.Array:
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
    """Dictionary-codes values in another order, over a dictionary of all of them in their own order."""
    indices = pa.array(np.arange(len(values), dtype=np.int32))
    indices = with_nulls_of(values, indices).take(positions)
    return pa.DictionaryArray.from_arrays(indices, values, safe=False)


def _nested_codes(pieces: Pieces, origins: Origins) -> pa.Array | None:
    """Gathers nested values as codes over one dictionary; None if no piece is dictionary-coded, or one is not
    packed."""
    if not pieces.has_codes or pieces.has_unpacked_codes:
        return None
    if pieces.has_values:
        pieces = _with_values_coded(pieces)
    strings = Pieces(pieces.arrays, pieces.fields, pieces.firsts, PACKED_TYPE)
    coded = Table(strings, origins).codes(0)
    if coded is None:
        return None
    values = unpacked(coded.dictionary, pieces.dtype)
    return pa.DictionaryArray.from_arrays(coded.indices, values, safe=False)


def _with_values_coded(pieces: Pieces) -> Pieces:
    """Dictionary-codes the pieces that are not: all of them at once, because there may be many small ones."""
    numbers = np.flatnonzero(pieces.fields[:, KIND] == VALUES).tolist()
    coded = _each_coded(concat_storage([pieces.array(number) for number in numbers]))
    arrays, fields = list(pieces.arrays), pieces.fields.copy()
    replace_by(arrays, fields, numbers, coded)
    return Pieces(arrays, fields, pieces.firsts, pieces.dtype)


def _each_coded(array: pa.Array) -> GatherArray:
    """Dictionary-codes nested values over a dictionary with one value per row."""
    indices = with_nulls_of(array, pa.array(np.arange(len(array), dtype=np.int32)))
    coded = pa.DictionaryArray.from_arrays(indices, array, safe=False)
    return GatherArray(coded, packed=packed(array), is_weighed=False)


def positions_by_source(origins: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """Returns each row's position among the sources' rows, end to end."""
    by_source = np.argsort(origins, kind="stable")
    positions = np.empty(len(origins), dtype=np.int64)
    positions[by_source] = np.arange(len(origins))
    return positions
