"""Opens what a table is published to."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from compactor.common.table_folder import table_around
from compactor.errors import UsageError
from compactor.lakes.lake import Lake, LakeKind, check_names
from compactor.lakes.publish import Publisher
from compactor.resources.packages import Extra, required
from compactor.stores.base import Store
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog

_UNCLEAR: Final = re.compile(r"[%#?\\\x00-\x1f\x7f\ud800-\udfff]")


def open_publisher(
    log: CommitLog,
    destination: str,
    kind: LakeKind,
    *,
    catalog: str | None = None,
    name: str | None = None,
    min_level: int = 0,
    threads: int = 1,
    on_progress: Callable[[int, int], None] = lambda _rows, _all: None,
) -> Publisher:
    """Opens the publisher of a table to a folder or `s3://bucket/prefix`.

    catalog, name: the Iceberg catalog, and the name of the table in it. The other arguments are those of
    `Publisher`. Raises `TableNotFoundError` without a table, and `UsageError` for a destination that overlaps
    it, and for a kind whose package is not installed.
    """
    target = open_store(destination)
    check_apart(log.store.url, target.url)
    check_names(kind, catalog, name)
    lake = _opened(kind, target, log.current().table_id, catalog, name)
    return Publisher(
        log, target, lake, min_level=min_level, threads=threads, on_progress=on_progress
    )


def _opened(
    kind: LakeKind, target: Store, table_id: str, catalog: str | None, name: str | None
) -> Lake:
    if kind is LakeKind.PARQUET:
        from compactor.lakes.parquet import ParquetFolder

        return ParquetFolder(target, table_id)
    _check_plain(target.url)
    with required(Extra.PUBLISH, f"publishing as {kind}"):
        if kind is LakeKind.DELTA:
            from compactor.lakes.delta import DeltaLake

            return DeltaLake(target, table_id)
        from compactor.lakes.iceberg import IcebergLake

        return IcebergLake(target, table_id, catalog, name)


def _check_plain(url: str) -> None:
    """Raises `UsageError` for an address that libraries and readers would take for that of another folder."""
    if (unclear := _UNCLEAR.search(url)) is not None:
        raise UsageError(
            f"{url}: Delta and Iceberg readers take {unclear[0]!a} in an address for something else: name "
            "a folder without %, #, ?, backslashes and control characters, or publish as parquet"
        )


def check_apart(table: str, destination: str) -> None:
    """Raises `UsageError` if one address is in the other, whatever links lead there, or if the destination is
    another table's folder, or in it. Both as their stores say them."""
    ours, theirs = (
        f"{(url if '://' in url else os.path.realpath(url)).rstrip('/')}/"
        for url in (table, destination)
    )
    if ours.startswith(theirs) or theirs.startswith(ours):
        raise overlap(table, destination)
    if "://" not in destination and (other := table_around(Path(theirs, "file"))) is not None:
        raise overlap(str(other), destination)


def overlap(table: str, destination: str) -> UsageError:
    """Returns the error of a destination that is in a table, or has it inside."""
    return UsageError(
        f"{destination}: overlaps the table at {table}, so that a vacuum of one would remove files of "
        "the other: name a folder of its own"
    )
