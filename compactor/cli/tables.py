"""Opens the tables, logs and fragments of all commands.

Most commands use a `Table` or `TableView` of the public interface. Commands for tables that do not exist yet,
for damaged logs, or with listeners, use the commit log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from compactor.stores.base import Store
from compactor.stores.open import open_store, split_object_url
from compactor.table.commit_log import CommitLog
from compactor.table.tags import Moment

if TYPE_CHECKING:
    from compactor.api.table import Table
    from compactor.api.view import TableView
    from lsm_fragment.container.reader import FragmentReader


def address_of(table: str) -> str:
    """Returns the full address of a table. Sends no request. Raises `UsageError` for an invalid address."""
    return open_store(table).url


def open_log(table: str, log_of: Callable[[Store], CommitLog] = CommitLog) -> CommitLog:
    """Opens the commit log of a table that may not exist. Sends no request yet.

    log_of: makes the log of the opened store. Raises `UsageError` for an invalid address.
    """
    return log_of(open_store(table))


def open_table(table: str) -> Table:
    """Opens a table at its newest version, to change it. Raises `TableNotFoundError`."""
    # Imported here, since reading needs no writers.
    from compactor.api.table import Table

    log = open_log(table)
    return Table(log, log.current())


def open_view(table: str, moment: Moment) -> TableView:
    """Opens a table for reading. Raises `VersionNotFoundError` for a version that is not retained."""
    # Imported here, since writing needs no readers.
    from compactor.api.view import TableView

    log = open_log(table)
    return TableView(log, log.at(*moment))


def open_fragment_at(address: str) -> FragmentReader:
    """Opens one fragment by its own address. Raises `ObjectNotFoundError`."""
    # Imported here, since most commands open no fragment themselves.
    from compactor.read.fragment_columns import open_fragment

    root, key = split_object_url(address)
    store = open_store(root)
    return open_fragment(store, key, store.head(key).size_bytes)
