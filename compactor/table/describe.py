"""Describes a table's fragments and versions as Arrow tables, from the log alone. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from compactor.table.snapshot import Snapshot
from compactor.table.version import Version

FRAGMENTS: Final = pa.schema(
    [
        ("key", pa.string()),
        ("level", pa.int32()),
        ("rows", pa.int64()),
        ("deleted_rows", pa.int64()),
        ("size_bytes", pa.int64()),
        ("raw_bytes", pa.int64()),
        ("row_groups", pa.int64()),
        ("first_key", pa.string()),
        ("last_key", pa.string()),
        ("window", pa.int64()),
        ("quarantine_reason", pa.string()),
    ]
)
HISTORY: Final = pa.schema(
    [
        ("version", pa.int64()),
        ("committed_at", pa.timestamp("ms", "UTC")),
        ("operation", pa.string()),
        ("fragments_added", pa.int64()),
        ("fragments_removed", pa.int64()),
        ("rows_added", pa.int64()),
        ("bytes_added", pa.int64()),
        ("committer", pa.string()),
    ]
)
TAGS: Final = pa.schema(
    [
        ("name", pa.string()),
        ("version", pa.int64()),
        ("tagged_at", pa.timestamp("ms", "UTC")),
        ("expires_at", pa.timestamp("ms", "UTC")),
        ("keeps_later", pa.bool_()),
    ]
)


def fragments_table(snapshot: Snapshot) -> pa.Table:
    """Returns the live fragments, oldest first, as `FRAGMENTS`. Keys are JSON arrays, as in the log."""
    entries = list(snapshot.by_age())
    reasons = {key: item.reason for key, item in snapshot.quarantine.items()}
    columns = [
        [entry.key for entry in entries],
        [entry.level for entry in entries],
        [entry.rows for entry in entries],
        [entry.deleted_rows for entry in entries],
        [entry.size_bytes for entry in entries],
        [entry.raw_bytes for entry in entries],
        [entry.row_groups for entry in entries],
        [json.dumps(list(entry.first_key), ensure_ascii=False) for entry in entries],
        [json.dumps(list(entry.last_key), ensure_ascii=False) for entry in entries],
        [entry.window for entry in entries],
        [reasons.get(entry.key) for entry in entries],
    ]
    return pa.table(columns, schema=FRAGMENTS)


def history_table(versions: Sequence[Version]) -> pa.Table:
    """Returns one row for each version, newest first, as `HISTORY`.

    A fragment that a version changed counts as added and as removed.
    """
    newest_first = sorted(versions, key=lambda version: -version.number)
    changes = [version.changes for version in newest_first]
    columns = [
        [version.number for version in newest_first],
        [version.committed_unix_ms for version in newest_first],
        [str(change.operation) for change in changes],
        [len(change.adds) for change in changes],
        [len(change.removes) for change in changes],
        [sum(entry.rows for entry in change.adds) for change in changes],
        [sum(entry.size_bytes for entry in change.adds) for change in changes],
        [version.committer for version in newest_first],
    ]
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, HISTORY, strict=True)], schema=HISTORY
    )


def tags_table(snapshot: Snapshot) -> pa.Table:
    """Returns the tags of a version by name, as `TAGS`. Those without expiry have null there."""
    tags = snapshot.tags
    columns = [
        [tag.name for tag in tags],
        [tag.version for tag in tags],
        [tag.tagged_unix_ms for tag in tags],
        [tag.expires_unix_ms for tag in tags],
        [tag.keeps_later for tag in tags],
    ]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, TAGS, strict=True)], schema=TAGS)
