"""Describes an input, as far as it is known before it is read."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from msgspec import Struct

from compactor.resources.fetch import ClosableSource


class InputFragment(Struct, frozen=True, kw_only=True):
    """An input, as far as it is known before it is read."""

    name: str
    """Its address, for errors."""
    source_id: str
    """Its name in the outputs' headers, independent of the table's address."""
    rows: int
    size_bytes: int
    row_hash: int
    open_source: Callable[[], ClosableSource]
    """Begins the only GET."""
    mean_row_bytes: int = 0
    """Average raw bytes of a row in the heaviest column; 0 if unknown."""
    peak_row_bytes: int = 0
    """The same average in the row group where it is greatest."""
    read_again: Callable[[], ClosableSource] | None = None
    """Opens the input for a second pass without a second GET, if it is on local disk anyway."""
    read_dropped: Callable[[], pa.BooleanArray | None] | None = None
    """Reads for each row whether it is left out; gives None if all rows are written."""
