"""Gathers templated columns: moves templates and variables, or makes text where there are too many
templates."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lsm_fragment.arrays.buffers import valid_mask
from lsm_fragment.arrays.dividing import NO_VARYING_WORDS, VaryingWords, split, varying_words_in
from lsm_fragment.arrays.moves import take
from lsm_fragment.arrays.storage import plain
from lsm_fragment.arrays.templated import (
    TEMPLATES_DIVISOR,
    codes_of,
    have_words,
    joined,
    templated,
    templates_of,
    text,
)
from lsm_fragment.arrays.types import is_templated
from lsm_fragment.gather.origins import Origins
from lsm_fragment.gather.pieces import CODES, KIND, NULLS, TEMPLATES, GatherArray, Pieces, renewed
from lsm_fragment.gather.table import Table


def with_few_templates(array: pa.Array) -> pa.Array:
    """Returns gathered rows, joined if they have too many templates for their number.

    So it depends on the rows alone, and not on how they were divided into pieces, whether they stay
    templated. `gather` does not do it, because text may take far more memory than what it is joined from:
    callers find out before whether it is too much.
    """
    if is_templated(array.type) and len(templates_of(array)) > _max_templates(len(array)):
        return joined(array)
    return array


def _max_templates(rows: int) -> int:
    return rows // TEMPLATES_DIVISOR


def gather_templates(pieces: Pieces, origins: Origins) -> pa.Array:
    """Gathers pieces of which one is templated: the others become so, or all become text if one of them has
    more templates than all rows may have."""
    most = _max_templates(len(origins))
    is_divided = np.isin(pieces.fields[:, KIND], (TEMPLATES, NULLS))
    words = NO_VARYING_WORDS if is_divided.all() else _varying_words(pieces)
    divided: list[GatherArray | pa.Array] = []
    for number in range(len(pieces)):
        if is_divided[number]:
            divided.append(pieces.arrays[number])
            continue
        if (array := split(plain(pieces.array(number)), most, words)) is None:
            divided.clear()  # takes as much memory as the text
            joined_rows = [text(pieces.array(number)) for number in range(len(pieces))]
            return Table(renewed(pieces, joined_rows), origins).strings()
        divided.append(array)
    pieces = renewed(pieces, divided)
    places = pieces.places_of_templates()
    parts = pieces.variables(places)
    pieces.fields[places, KIND] = CODES
    coded = Table(pieces, origins).codes(0)
    if coded is None:
        return pa.nulls(len(origins), pieces.dtype)
    numbers, texts = (_without_nulls(Table(part, origins).strings()) for part in parts)
    return templated(coded.dictionary, coded.indices, numbers, texts)


def _varying_words(pieces: Pieces) -> VaryingWords:
    """Returns the words that rows of templated pieces have as variables. It depends on these rows alone."""
    numbers = np.flatnonzero(pieces.fields[:, KIND] == TEMPLATES).tolist()
    arrays = (pieces.array(number) for number in numbers)
    return varying_words_in(map(_used_templates, arrays))


def _used_templates(array: pa.Array) -> pa.Array:
    """Returns the templates that rows have; none where no template has words."""
    templates = templates_of(array)
    if not have_words(templates):
        return templates[:0]
    codes, valid = codes_of(array), valid_mask(array)
    return take(templates, np.unique(codes if valid is None else codes[valid]))


def _without_nulls(array: pa.Array) -> pa.Array:
    """Returns binaries that are empty where they were null."""
    return pa.Array.from_buffers(array.type, len(array), [None, *array.buffers()[1:]], 0)
