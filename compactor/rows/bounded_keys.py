"""Sort keys of bounded length for texts of any length, and the tables that are sorted by them."""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
import pyarrow as pa

from lsm_fragment import compute as pc
from lsm_fragment.arrays.moves import keep, take

KEY_OF: Final = "key_of"
"""The property of a table with the name of the column whose keys its first sort column has."""
_TEXT: Final = pa.large_string()
_PREFIX_CHARACTERS: Final = 128
_DIGEST_BYTES: Final = 16
_KEY_CHARACTERS: Final = _PREFIX_CHARACTERS + 2 * _DIGEST_BYTES
"""Length of the keys of long texts, which no shorter text has: so keys are as distinct as texts."""


def keys_of(texts: pa.Array) -> pa.Array:
    """Returns the keys by which a table is sorted: short texts themselves, and the start of long texts with a
    digest of the whole. Large strings.

    texts: without nulls.
    """
    texts = texts.cast(_TEXT)
    is_long = np.asarray(pc.greater_equal(pc.utf8_length(texts), _KEY_CHARACTERS))
    if not is_long.any():
        return texts
    keys = [_long_key(text) for text in keep(texts, is_long).to_pylist()]
    at = np.arange(len(texts))
    at[is_long] = len(texts) + np.arange(len(keys))
    return take(pa.concat_arrays([texts, pa.array(keys, _TEXT)]), at)


def _long_key(text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return text[:_PREFIX_CHARACTERS] + digest
