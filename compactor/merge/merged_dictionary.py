"""Merges one column's dictionaries to one, into which the codes of all inputs point while the column is
merged.

Each chunk comes with its own dictionary, whose values are looked up once per chunk. From then on rows of the
column are small integers that are joined and reordered like any others. Values are found by their hash and
then compared, so that lists work like strings.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from format.hashing import U64, contributions_by_code, value_hashes
from format.nodes import dictionary_codes, fixed_width_view, valid_mask
from format.storage import decoded
from format.types import is_binary_like

CODES: Final = pa.int32()
_MAX_VALUES: Final = 1 << 16
_FEW_VALUES: Final = 256
_RARE_SHARE: Final = 8
"""Strings that occur less often than this on average are moved as values, not as codes."""
_SHORT_BYTES: Final = 64
"""Average bytes of strings up to which moving them as values takes little memory."""


class MergedDictionary:
    """A dictionary that grows with the values that come, up to a size; further new values stay outside."""

    def __init__(self, name: str, dtype: pa.DataType, most_bytes: int) -> None:
        self._name = name
        self._most_bytes = most_bytes
        self.values = pa.array([], dtype)
        self._looks_like_codes = pt.is_int32(dtype)
        self._hashes = np.zeros(0, dtype=np.uint64)
        self._sorted = np.zeros(0, dtype=np.uint64)
        self._code_of_sorted = np.zeros(0, dtype=np.int32)
        self._code_of: dict[str | bytes, int] = {}
        """Codes of the values of small dictionaries, which come again and again."""
        self._contributions: U64 | None = None

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes) + 32 * len(self.values)

    def adopt(self, array: pa.Array) -> pa.Array:
        """Converts a dictionary-coded array to int32 codes of this dictionary.

        Returns it decoded if its values hardly repeat, and unchanged if they do not fit in.
        """
        values = array.dictionary
        is_rare = len(values) * _RARE_SHARE > len(array)
        if is_rare and is_binary_like(values.type) and values.nbytes <= _SHORT_BYTES * len(values):
            return decoded(array)
        codes = self._codes_of(values)
        if codes is None:
            return array
        valid = valid_mask(array)
        own = dictionary_codes(array)
        moved = codes[own if valid is None else np.where(valid, own, 0)]
        return pa.array(moved, mask=None if valid is None else ~valid)

    def has_coded(self, array: pa.Array) -> bool:
        """Returns whether these are codes of this dictionary, and not the column's values."""
        return isinstance(array, pa.Int32Array) and not self._looks_like_codes

    def coded(self, codes: pa.Array) -> pa.Array:
        """Returns codes as a dictionary-coded array."""
        return pa.DictionaryArray.from_arrays(codes, self.values, safe=False)

    def decoded(self, codes: pa.Array) -> pa.Array:
        return pc.take(self.values, codes, boundscheck=False)

    def contributions(self, codes: pa.Array) -> U64:
        """Returns what the coded values add to the rows' numbers (see `format.hashing`). Shape (rows,)."""
        if self._contributions is None:
            self._contributions = contributions_by_code(self._name, value_hashes(self.values))
        valid = valid_mask(codes)
        numbers = fixed_width_view(codes, np.int32)
        if valid is None:
            present: U64 = self._contributions[numbers]
            return present
        out: U64 = self._contributions[np.where(valid, numbers, 0)]
        out[~valid] = 0
        return out

    def _codes_of(self, values: pa.Array) -> npt.NDArray[np.int32] | None:
        """Returns the code of each value, and adds new values; None if they do not all fit in."""
        if not len(self._hashes) or len(values) > _FEW_VALUES or pt.is_nested(values.type):
            return self._looked_up(values)
        found = [self._code_of.get(value) for value in values.to_pylist()]
        if None not in found:
            return np.array(found, dtype=np.int32)
        codes = self._looked_up(values)
        if codes is not None:
            self._code_of.update(zip(values.to_pylist(), codes.tolist(), strict=True))
        return codes

    def _looked_up(self, values: pa.Array) -> npt.NDArray[np.int32] | None:
        hashes = value_hashes(values, is_whole=True)
        at = np.searchsorted(self._sorted, hashes)
        known = np.zeros(len(values), dtype=np.bool_)
        inside = at < len(self._sorted)
        known[inside] = self._sorted[at[inside]] == hashes[inside]
        codes: npt.NDArray[np.int32] = np.empty(len(values), dtype=np.int32)
        codes[known] = self._code_of_sorted[at[known]]
        if known.any() and not self._are(values, known, codes):
            return None
        if known.all():
            return codes
        new = np.flatnonzero(~known)
        if not self._add(values.take(pa.array(new)), hashes[new]):
            return None
        codes[new] = np.arange(len(self._hashes) - len(new), len(self._hashes), dtype=np.int32)
        return codes

    def _are(
        self, values: pa.Array, known: npt.NDArray[np.bool_], codes: npt.NDArray[np.int32]
    ) -> bool:
        found = self.values.take(pa.array(codes[known]))
        wanted = values if known.all() else values.filter(pa.array(known))
        return bool(found.equals(wanted))

    def _add(self, values: pa.Array, hashes: U64) -> bool:
        size = len(self.values) + len(values)
        if size > _MAX_VALUES or self.nbytes + values.nbytes + 32 * len(values) > self._most_bytes:
            return False
        if len(np.unique(hashes)) < len(hashes):
            return False
        self.values = pa.concat_arrays([self.values, values])
        self._hashes = np.concatenate([self._hashes, hashes])
        order = np.argsort(self._hashes)
        self._sorted = self._hashes[order]
        self._code_of_sorted = order.astype(np.int32)
        self._contributions = None
        return True


def code_nulls(rows: int) -> pa.Array:
    return pa.nulls(rows, CODES)


__all__ = ["MergedDictionary", "code_nulls"]
