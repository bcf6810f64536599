"""Counts templates in columns stored as templates, from a few row groups of the largest fragments."""

from __future__ import annotations

from typing import Final

from compactor.errors import CompactorError
from compactor.read.fragment_columns import open_logged_fragment
from compactor.read.read_reports import StoredTemplates
from compactor.read.stored_templates import stored_templates
from compactor.report.data import Columns
from compactor.stores.base import Store
from compactor.table.snapshot import Snapshot
from lsm_fragment.encodings.node import Encoding
from lsm_fragment.errors import FormatError

_MAX_COLUMNS: Final = 5
_SHOWN: Final = 15
"""Maximum templates per column."""


def templates_of(
    store: Store, snapshot: Snapshot, columns: Columns, max_chunks: int
) -> tuple[tuple[StoredTemplates, ...], list[str]]:
    """Returns the templates of the largest templated columns, and notes on what could not be read.

    columns: tells which columns are templated. max_chunks: maximum row groups per column, and maximum
    fragments to open.
    """
    stored_so = [row for row in columns.rows if Encoding.TEMPLATE.name in row.encodings]
    stored_so.sort(key=lambda row: -row.stored_bytes)
    found: list[StoredTemplates] = []
    notes: list[str] = []
    if not stored_so or not max_chunks:
        return (), notes
    readers = []
    largest = sorted(snapshot.fragments.all(), key=lambda entry: (-entry.size_bytes, entry.key))
    for entry in largest[:max_chunks]:
        try:
            readers.append(open_logged_fragment(store, entry))
        except (FormatError, CompactorError) as error:
            notes.append(f"The templates of {entry.key} could not be read: {error}")
    for row in stored_so[:_MAX_COLUMNS]:
        name = snapshot.table.stored_name(row.name)
        assert name is not None  # a column of the table
        try:
            templates = stored_templates(
                row.name, name, readers, max_chunks=max_chunks, shown=_SHOWN
            )
        except (FormatError, CompactorError) as error:
            notes.append(f"The templates of {row.name} could not be read: {error}")
        else:
            found += [templates] if templates.templates else []
    return tuple(found), notes
