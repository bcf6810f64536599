"""Gathers bytes per column from the log, and encodings and nulls from some footers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Final

from msgspec import Struct, field

from compactor.common.sampling import evenly
from compactor.errors import CompactorError, message_of
from compactor.read.fragment_columns import open_logged_fragment
from compactor.report.data import ColumnRow, Columns
from compactor.stores.base import Store
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata
from compactor.table.snapshot import Snapshot
from lsm_fragment.container.footer_reader import FooterReader
from lsm_fragment.errors import FormatError
from lsm_fragment.threads import ThreadPool

_READERS: Final = 16

Advance = Callable[[int, int], None]
"""Progress callback: footers read, and footers to read."""


class _Seen(Struct):
    """Sums for one column over the footers read."""

    rows: int = 0
    nulls: int = 0
    encodings: Counter[str] = field(default_factory=Counter)


def columns_of(store: Store, snapshot: Snapshot, max_footers: int, advance: Advance) -> Columns:
    entries = [entry for entry in snapshot.by_age() if entry.rows]
    sample = evenly(entries, max_footers)
    seen: dict[str, _Seen] = {}
    unreadable: list[tuple[str, str]] = []
    with closing(ThreadPool(_READERS)) as readers:
        parts = (sample[start : start + _READERS] for start in range(0, len(sample), _READERS))
        outcomes = (o for part in parts for o in readers.each(partial(_footer, store), part))
        for done, (entry, outcome) in enumerate(zip(sample, outcomes, strict=True), 1):
            if isinstance(outcome, FooterReader):
                _count(outcome, seen)
            else:
                unreadable.append((entry.key, message_of(outcome)))
            advance(done, len(sample))
    rows = _column_rows(snapshot.table, snapshot.fragments.all(), seen)
    return Columns(rows, len(sample) - len(unreadable), len(entries), tuple(unreadable))


def _footer(store: Store, entry: FragmentEntry) -> FooterReader | Exception:
    try:
        return open_logged_fragment(store, entry).footer
    except (FormatError, CompactorError) as error:
        return error


def _count(footer: FooterReader, seen: dict[str, _Seen]) -> None:
    for name, chunks in footer.columns.items():
        column = seen.setdefault(name, _Seen())
        column.rows += footer.rows
        column.nulls += sum(chunk.null_count for chunk in chunks)
        column.encodings.update(chunk.encoding for chunk in chunks)


def _column_rows(
    table: TableMetadata, entries: Sequence[FragmentEntry], seen: dict[str, _Seen]
) -> tuple[ColumnRow, ...]:
    stored: Counter[str] = Counter()
    raw: Counter[str] = Counter()
    for entry in entries:
        for name, sizes in entry.columns.items():
            stored[name] += sizes.stored
            raw[name] += sizes.raw
    positions = {column.column: place for place, column in enumerate(table.sort, 1)}
    return tuple(
        ColumnRow(
            name=table.shown_name(column.name),
            type=str(column.type),
            sort_position=positions.get(column.name),
            stored_bytes=stored[column.name],
            raw_bytes=raw[column.name],
            null_share=seen[column.name].nulls / seen[column.name].rows
            if column.name in seen
            else None,
            encodings=dict(seen[column.name].encodings.most_common())
            if column.name in seen
            else {},
        )
        for column in table.schema
    )
