"""Sort keys of bounded length, for ids that may be as long as all the ids that they consist of."""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
import pyarrow as pa

from compactor.entities.texts import TEXT, replaced
from lsm_fragment import compute as pc

_PREFIX_CHARACTERS: Final = 128
_DIGEST_BYTES: Final = 16
_KEY_CHARACTERS: Final = _PREFIX_CHARACTERS + 2 * _DIGEST_BYTES
"""Length of the keys of long ids, which no shorter id has: so keys are as distinct as ids."""


def keys_of(ids: pa.Array) -> pa.Array:
    """Returns the keys by which a table is sorted: short ids themselves, and the start of long ids with a
    digest of the whole. Large strings."""
    ids = ids.cast(TEXT)
    is_long = np.asarray(pc.greater_equal(pc.utf8_length(ids), _KEY_CHARACTERS))
    if not is_long.any():
        return ids
    keys = [_long_key(name) for name in ids.filter(pa.array(is_long)).to_pylist()]
    return replaced(ids, is_long, pa.array(keys, TEXT))


def _long_key(name: str) -> str:
    digest = hashlib.blake2b(name.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return name[:_PREFIX_CHARACTERS] + digest
