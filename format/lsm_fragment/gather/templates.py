"""Gathers templated columns: moves templates and variables, or text if there are too many templates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from lsm_fragment.arrays.buffers import valid_mask
from lsm_fragment.arrays.dividing import NO_VARYING_WORDS, VaryingWords, split, varying_words_in
from lsm_fragment.arrays.joining import concat_logical
from lsm_fragment.arrays.moves import take
from lsm_fragment.arrays.storage import plain
from lsm_fragment.arrays.templated import (
    codes_of,
    have_words,
    joined,
    max_kept_templates,
    templated,
    templates_of,
    text,
)
from lsm_fragment.arrays.types import is_templated
from lsm_fragment.gather.origins import Origins
from lsm_fragment.gather.pieces import (
    CODES,
    KIND,
    NULLS,
    TEMPLATES,
    GatherArray,
    NumberedStrings,
    Pieces,
    renewed,
    replace_by,
)
from lsm_fragment.gather.table import Table

_BATCH_BYTES: Final = 1 << 20
"""Divide small pieces together up to this size, which bounds the copy of their strings."""


def with_few_templates(array: pa.Array) -> pa.Array:
    """Joins gathered rows if they have too many templates for their number.

    Whether rows stay templated then depends on them alone, not on how they were divided into pieces. `gather`
    leaves this to its callers, since text may take far more memory than templates: they check the size first.
    """
    if is_templated(array.type) and len(templates_of(array)) > max_kept_templates(len(array)):
        return joined(array)
    return array


def gather_templates(pieces: Pieces, origins: Origins) -> pa.Array:
    """Gathers pieces when at least one is templated: converts the rest to templates, or everything to text if
    some of them exceed the template limit."""
    divided = _divided(pieces, max_kept_templates(len(origins)))
    if divided is None:
        joined_rows = [text(pieces.array(number)) for number in range(len(pieces))]
        return Table(renewed(pieces, joined_rows), origins).strings()
    places = divided.places_of_templates()
    parts = divided.variables(places)
    divided.fields[places, KIND] = CODES
    coded = Table(divided, origins).codes(0)
    if coded is None:
        return pa.nulls(len(origins), pieces.dtype)
    numbers, texts = (_without_nulls(Table(part, origins).strings()) for part in parts)
    return templated(coded.dictionary, coded.indices, numbers, texts)


def _divided(pieces: Pieces, max_templates: int) -> Pieces | None:
    """Divides the pieces without templates; None if there are more than `max_templates` in one division."""
    numbers = np.flatnonzero(~np.isin(pieces.fields[:, KIND], (TEMPLATES, NULLS))).tolist()
    words = _varying_words(pieces) if numbers else NO_VARYING_WORDS
    arrays, fields = list(pieces.arrays), pieces.fields.copy()
    for series, (batch, strings) in enumerate(_batches(pieces, numbers), 1):
        if (divided := split(strings, max_templates, words)) is None:
            return None
        array = GatherArray(divided, pieces.dtype, numbered=NumberedStrings.shared(series))
        replace_by(arrays, fields, batch, array)
    return Pieces(arrays, fields, pieces.firsts, pieces.dtype)


def _batches(pieces: Pieces, numbers: Sequence[int]) -> Iterator[tuple[list[int], pa.Array]]:
    """Joins the strings of small pieces, since a division costs as much as some hundred rows."""
    batch, arrays, size = list[int](), list[pa.Array](), 0
    for number in numbers:
        array = plain(pieces.array(number))
        size += array.nbytes
        if batch and size > _BATCH_BYTES:
            yield batch, concat_logical(arrays)
            batch, arrays, size = [], [], array.nbytes
        batch.append(number)
        arrays.append(array)
    if batch:
        yield batch, concat_logical(arrays)


def _varying_words(pieces: Pieces) -> VaryingWords:
    """Returns the varying words of the templated pieces. The result depends on their rows alone."""
    numbers = np.flatnonzero(pieces.fields[:, KIND] == TEMPLATES).tolist()
    arrays = (pieces.array(number) for number in numbers)
    return varying_words_in(map(_used_templates, arrays))


def _used_templates(array: pa.Array) -> pa.Array:
    """Returns the templates in use; none if no template has words."""
    templates = templates_of(array)
    if not have_words(templates):
        return templates[:0]
    codes, valid = codes_of(array), valid_mask(array)
    return take(templates, np.unique(codes if valid is None else codes[valid]))


def _without_nulls(array: pa.Array) -> pa.Array:
    """Replaces null binaries by empty ones."""
    return pa.Array.from_buffers(array.type, len(array), [None, *array.buffers()[1:]], 0)
