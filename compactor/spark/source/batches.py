"""Remembers in a table's metadata which numbered batches it has taken in.

Rows and memory change in one commit, so a batch that comes twice is in the table once. The idea is that of
Delta's transaction identifiers.
"""

from __future__ import annotations

import json
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import DataError
from compactor.table.metadata import TableMetadata
from lsm_fragment.errors import cause_of

_NAME: Final = "batches"


class Batch(Struct, frozen=True):
    """A batch of one application, whose batches come in ascending order of number."""

    app_id: str
    number: int


def is_taken(batch: Batch, metadata: TableMetadata | None, url: str) -> bool:
    """Says whether the table has this batch or a later one of its application. Raises `DataError`."""
    return metadata is not None and batch.number <= _newest(metadata, url).get(batch.app_id, -1)


def with_batch(metadata: TableMetadata, batch: Batch, url: str) -> TableMetadata:
    """Returns the metadata that remembers the batch. Raises `DataError`."""
    newest = {**_newest(metadata, url), batch.app_id: batch.number}
    text = json.dumps(newest, separators=(",", ":"), sort_keys=True)
    remembered = {**dict(metadata.remembered), _NAME: text}
    return replace(metadata, remembered=tuple(remembered.items()))


def _newest(metadata: TableMetadata, url: str) -> dict[str, int]:
    """Returns the number of the newest batch of each application."""
    text = dict(metadata.remembered).get(_NAME, "{}")
    try:
        return {str(app): int(number) for app, number in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(
            f"{url}: what the table remembers as 'batches' is damaged ({cause_of(error)})"
        ) from error
