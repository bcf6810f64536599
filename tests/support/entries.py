"""Makes entries of fragments whose objects no test opens."""

from __future__ import annotations

from typing import Any

from compactor.table.entry import FragmentEntry
from lsm_fragment.keys.bounds import Bound


def made_up_entry(
    key: str, first_key: Bound, last_key: Bound, *, rows: int, size_bytes: int, **values: Any
) -> FragmentEntry:
    """Returns the entry of a fragment on level 0 with one row group. values: other fields than these."""
    defaults: dict[str, Any] = {
        "level": 0,
        "run": key,
        "sequence": (1, 0),
        "row_hash": 7,
        "row_groups": 1,
        "peak_chunk_bytes": 8,
        "peak_row_bytes": 8,
        "columns": {},
    }
    return FragmentEntry(
        key=key,
        first_key=first_key,
        last_key=last_key,
        rows=rows,
        size_bytes=size_bytes,
        **defaults | values,
    )
