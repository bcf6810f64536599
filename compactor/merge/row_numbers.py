"""Sums up the row hash: one number per row, to which every column adds (SPEC section 7).

Outputs are hashed by the rule of the version in which they are written. Rows from fragments of an earlier
version are hashed by its rule as well, so that they can be compared with the inputs' hashes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.tape import PagedNumbers
from compactor.rows.flags import KEPT, Flags
from format.hashing import U64, column_contributions, combine, fold_rows
from format.layout import VERSION

STAGE = "row hashes"


def hash_of_pages(numbers: PagedNumbers) -> int:
    """Returns the hash of all rows."""
    return combine(*(fold_rows(numbers.get(page)) for page in range(len(numbers))))


class RowNumbers:
    """The row numbers of one output, one page per row group."""

    def __init__(self, budget: MemoryBudget, disk: LocalDisk, versions: Sequence[int]) -> None:
        """versions: the format's versions of the inputs, in their order."""
        self._is_old = np.array([version < VERSION for version in versions], dtype=np.bool_)
        self._now = PagedNumbers(budget, STAGE, disk)
        # Version 1 is the only other rule.
        self._before = PagedNumbers(budget, STAGE, disk) if self._is_old.any() else None

    def __len__(self) -> int:
        return len(self._now)

    def append(self, names: Sequence[str], keys: Sequence[pa.Array]) -> None:
        """Begins a row group with its sort columns."""
        for numbers, version in self._rules():
            sums = np.zeros(len(keys[0]), dtype=np.uint64)
            for name, array in zip(names, keys, strict=True):
                sums += column_contributions(name, array, version)
            numbers.append(sums)

    def add(self, page: int, name: str, array: pa.Array, contributions: U64 | None = None) -> None:
        """Adds a column. contributions: by the current rule, if they are known already."""
        for numbers, version in self._rules():
            known = contributions if version == VERSION else None
            numbers.add(
                page, column_contributions(name, array, version) if known is None else known
            )

    def hash_of(self, page: int, flags: Flags | None = None) -> int:
        """Returns a row group's hash by the current rule: of all its rows, or of the kept ones."""
        numbers = self._now.get(page)
        return fold_rows(numbers if flags is None else numbers[(flags & KEPT).astype(np.bool_)])

    def comparable_hash(self, page: int, origins: npt.NDArray[np.intp]) -> int:
        """Returns a row group's hash, each row by the rule of its input. origins: the rows' inputs, shape
        (rows,)."""
        if self._before is None:
            return fold_rows(self._now.get(page))
        is_old = self._is_old[origins]
        return fold_rows(np.where(is_old, self._before.get(page), self._now.get(page)))

    @property
    def has_old(self) -> bool:
        return self._before is not None

    def spill(self) -> int:
        return sum(numbers.spill() for numbers, _ in self._rules())

    def close(self) -> None:
        for numbers, _ in self._rules():
            numbers.close()

    def _rules(self) -> Iterator[tuple[PagedNumbers, int]]:
        yield self._now, VERSION
        if self._before is not None:
            yield self._before, 1
