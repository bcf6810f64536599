"""The source of each row in merged order, with the counts that every column needs."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from lsm_fragment import native

U16 = npt.NDArray[np.uint16]
I64 = npt.NDArray[np.int64]

_SHORT_RUN: Final = 8
"""Gather row by row, without looking for runs, if they are shorter than this on average."""


class Origins(Struct, frozen=True, eq=False):
    """The sources of rows, numbered from 0. Immutable, so that threads can share it."""

    sources: U16
    """The source of each row. Shape (rows,)."""
    counts: I64
    """Number of rows of each source; native code relies on it. Shape (sources,)."""
    runs: int
    """Number of runs of rows of one source."""

    @classmethod
    def of(cls, sources: U16, number: int) -> Origins:
        """Counts the rows of `number` sources. Raises ValueError for a source out of range."""
        counts = np.empty(number, dtype=np.int64)
        return cls(sources, counts, native.gather.origins.count(sources, counts))

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def has_short_runs(self) -> bool:
        return self.runs * _SHORT_RUN > len(self.sources)
