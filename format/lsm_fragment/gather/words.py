"""Gathers worded columns: their text, and its numbers in a vocabulary of all rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lsm_fragment.arrays.worded import MAX_NUMBERS_FRACTION, Words
from lsm_fragment.gather.origins import Origins
from lsm_fragment.gather.pieces import KIND, NULLS, ROWS, START, Pieces, renewed
from lsm_fragment.gather.table import Table


def gather_words(pieces: Pieces, origins: Origins) -> tuple[pa.Array, Words | None]:
    """Gathers pieces of which at least one is worded. Returns their strings, and their words where those are
    known without looking at the strings: then they are the words that a writer would find in these.

    Raises `pa.ArrowInvalid` if the strings exceed 32-bit offsets.
    """
    are_null = pieces.fields[:, KIND] == NULLS
    rows = [array.words for array in pieces.arrays]
    tables = {id(words.table): words.table for words in rows if words is not None}
    are_worded = np.array([words is not None for words in rows])
    if len(tables) > 1 or not bool(np.all(are_worded | are_null)):
        strings = renewed(pieces, [pieces.array(number) for number in range(len(pieces))])
        return Table(strings, origins).strings(), None
    places = np.zeros((len(pieces), 4), dtype=np.int64)
    places[:, 2:] = pieces.fields[:, [START, ROWS]]
    for number in np.flatnonzero(~are_null).tolist():
        places[number, :2] = pieces.arrays[number].words.addresses  # type: ignore[union-attr]
    table = Table(pieces, origins)
    size = table.text_bytes
    (known,) = tables.values()
    text, found = known.gathered(
        places, pieces.firsts, origins.sources, size, int(size * MAX_NUMBERS_FRACTION)
    )
    return table.strings_of(text), None if found is None else Words(*found)
