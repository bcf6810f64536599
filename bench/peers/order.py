"""Checks the sort order of outputs, because an engine that does not sort is fast."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def is_sorted(table: pa.Table, sort: Sequence[str]) -> bool:
    """Returns whether rows ascend by these columns, which must not have nulls."""
    if table.num_rows < 2:
        return True
    above: pa.ChunkedArray | None = None
    for name in reversed(sort):
        here, following = table[name].slice(0, table.num_rows - 1), table[name].slice(1)
        greater = pc.greater(here, following)
        if above is not None:
            greater = pc.or_(greater, pc.and_(pc.equal(here, following), above))
        above = greater
    return not pc.any(above).as_py()
