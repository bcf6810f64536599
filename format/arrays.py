"""Joining storage arrays, plain and dictionary-coded."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def concat_storage(arrays: Sequence[pa.Array]) -> pa.Array:
    """Storage arrays of one type end to end; dictionary-coded ones come out over one dictionary.

    Where only some are dictionary-coded, the result is plain. Raises `pa.ArrowInvalid` where the
    bytes exceed what 32-bit offsets reach.
    """
    if len(arrays) == 1:
        return arrays[0]
    coded = [pa.types.is_dictionary(array.type) for array in arrays]
    if not any(coded):
        return pa.concat_arrays(arrays)
    if not all(coded):
        return pa.concat_arrays(
            [
                array.dictionary_decode() if is_coded else array
                for array, is_coded in zip(arrays, coded, strict=True)
            ]
        )
    first = arrays[0].dictionary
    if all(array.dictionary.equals(first) for array in arrays[1:]):
        indices = pa.concat_arrays([array.indices for array in arrays])
        return pa.DictionaryArray.from_arrays(indices, first, safe=False)
    return pa.chunked_array(arrays).unify_dictionaries().combine_chunks()
