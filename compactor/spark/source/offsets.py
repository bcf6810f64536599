"""The offsets of a stream that reads a table, as Spark's checkpoint stores them. Pure.

An offset says how far a query has read. Spark records the end of each batch before the batch runs, and never
where the first one begins: it asks for that again when the first batch is repeated. So the beginning is an
empty offset, whatever the options say, and the first end also says where the changes begin.
"""

from __future__ import annotations

from typing import Any, Final, Self

import msgspec
from msgspec import Struct

from compactor.common.plain_values import plain_dict
from compactor.errors import DataError, UsageError
from compactor.table.numbers import Natural
from compactor.table.snapshot import Snapshot
from lsm_fragment.errors import cause_of

BEGINNING: Final[dict[str, Any]] = {}
"""The offset of a query that has read nothing."""


class Offset(Struct, frozen=True, kw_only=True):
    """How far a query has read a table."""

    table: str
    """Id of the table, which distinguishes it from another one in its place."""
    version: Natural
    """All that this version and those before it changed was read."""
    since: Natural | None = None
    """In the first offset of a query that begins with changes: the version after which they begin."""
    parts: Natural | None = None
    """While the first snapshot is read: how many of its parts were read; None if all were."""

    @classmethod
    def parsed(cls, stored: dict[str, Any]) -> Self:
        """Returns the offset of a checkpoint. Raises `DataError`."""
        try:
            return msgspec.convert(stored, cls)
        except msgspec.ValidationError as error:
            raise DataError(
                f"fragments: the checkpoint's offset {stored!r} is damaged ({cause_of(error)}): start the "
                "query with another checkpoint"
            ) from error

    def stored(self) -> dict[str, Any]:
        """Returns the form that a checkpoint stores."""
        return {name: value for name, value in plain_dict(self).items() if value is not None}

    def check(self, newest: Snapshot, url: str) -> None:
        """Raises `UsageError` for an offset of another table, or of a version that is no longer there."""
        if newest.table_id != self.table:
            raise UsageError(
                f"{url}: another table than the one that this checkpoint has read: start the query with "
                "another checkpoint"
            )
        if self.version > newest.version:
            raise UsageError(
                f"{url}: the checkpoint has read version {self.version}, and the table is at version "
                f"{newest.version}, as if an older copy had been put in its place: start the query with "
                "another checkpoint"
            )
