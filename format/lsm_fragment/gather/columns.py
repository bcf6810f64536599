"""Gathers rows of several sources in merged order: fixed-width values, strings, dictionary codes, templates
and their variables in native code, nested values by `lsm_fragment.arrays.moves` unless their dictionaries are
packed.

Sources are numbered from 0; each has its rows in pieces. `Origins` has the source of each output row, and the
rows of one source keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.types import (
    is_binary_like,
    value_type,
)
from lsm_fragment.gather.nested import nested
from lsm_fragment.gather.origins import Origins
from lsm_fragment.gather.pieces import PACKED_TYPE, ROWS, Pieces, pieces_of
from lsm_fragment.gather.table import Table
from lsm_fragment.gather.templates import gather_templates
from lsm_fragment.gather.words import gather_words


def gather(
    pieces: Pieces,
    origins: Origins,
    max_plain_bytes: int = 0,
    *,
    may_code_each: bool = False,
) -> pa.Array:
    """Gathers storage arrays. Returns an array of the pieces' type: dictionary-coded if all pieces are,
    templated if at least one is, unless another piece alone has too many templates (see
    `with_few_templates`).

    A dictionary has exactly the values in use, in the order of their first use. Strings that hardly repeat
    are returned as values if these take at most `max_plain_bytes`. Nested values are coded if some pieces
    are, and all coded pieces are packed.

    pieces: each source has as many rows as `origins` names.
    may_code_each: whether lists and maps may be returned coded over a dictionary with one value per row,
    which moves no values; for callers that number them anyway.
    Raises `pa.ArrowInvalid` if the result exceeds 32-bit offsets.
    """
    dtype = pieces.dtype
    if not len(origins) or pt.is_null(dtype):
        return pa.nulls(len(origins), dtype)
    if len(pieces) == 1 and pieces.has_values and not pieces.has_words:
        return pieces.array(0)
    if pt.is_nested(dtype):
        return nested(pieces, origins, may_code_each=may_code_each)
    if pieces.has_templates:
        return gather_templates(pieces, origins)
    if pieces.has_words:
        return gather_words(pieces, origins)[0]
    table = Table(pieces, origins)
    if pt.is_boolean(dtype):
        return table.booleans()
    if is_binary_like(dtype):
        return table.codes(max_plain_bytes) or table.strings()
    return table.fixed()


def used_bytes(pieces: Pieces) -> int | None:
    """Returns the total size of the distinct strings, or packed values, of dictionary-coded rows, without
    copying them; None if nested values are not packed."""
    if pt.is_nested(pieces.dtype):
        if pieces.has_unpacked_codes:
            return None
        pieces = Pieces(pieces.arrays, pieces.fields, pieces.firsts, PACKED_TYPE)
    rows = np.add.reduceat(pieces.fields[:, ROWS], pieces.firsts)
    sources = np.repeat(np.arange(len(rows), dtype=np.uint16), rows)
    return Table(pieces, Origins(sources, rows, len(rows))).used_bytes()


def gather_arrays(sources: Sequence[Sequence[pa.Array]], origins: Origins) -> pa.Array:
    """Gathers whole arrays of one type, dictionary-coded or not; like `gather`. At least one is required."""
    dtype = next(value_type(array.type) for source in sources for array in source)
    return gather(pieces_of(sources, dtype, are_weighed=False), origins)
