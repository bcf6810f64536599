"""Numbered batches that a table has taken in: remembered in its properties, so that rows and memory change in
one commit, and a batch that comes twice is in the table once.

The idea is that of Delta's transaction identifiers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Final

from compactor.errors import DataError
from compactor.table.metadata import TableMetadata

_PROPERTY: Final = "batches"


@dataclass(frozen=True, slots=True)
class Batch:
    """Batches of one application come in ascending order."""

    app_id: str
    number: int


def is_taken(batch: Batch, metadata: TableMetadata | None, url: str) -> bool:
    """Whether it is in the table, or a later one of its application. Raises `DataError`."""
    return metadata is not None and batch.number <= _newest(metadata, url).get(batch.app_id, -1)


def with_batch(metadata: TableMetadata, batch: Batch, url: str) -> TableMetadata:
    """The metadata that remembers it. Raises `DataError`."""
    newest = {**_newest(metadata, url), batch.app_id: batch.number}
    text = json.dumps(newest, separators=(",", ":"), sort_keys=True)
    properties = {**dict(metadata.properties), _PROPERTY: text}
    return replace(metadata, properties=tuple(properties.items()))


def _newest(metadata: TableMetadata, url: str) -> dict[str, int]:
    """Number of the newest batch of each application."""
    text = dict(metadata.properties).get(_PROPERTY, "{}")
    try:
        return {str(app): int(number) for app, number in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(f"{url}: its memory of batches is damaged ({error!r})") from error
