"""What can go wrong in a merge, beyond damaged inputs."""

from __future__ import annotations

from compactor.errors import DataError


class MergeCheckError(DataError):
    """Rows out do not equal rows in, or their hashes differ: nothing of the merge may be used."""


class InputMismatchError(DataError):
    """An input is not what the table's log says of it."""


class RowGroupOvershootError(Exception):
    """A row group's chunk came out far heavier than the target: start again with fewer rows.

    Control flow between a merge and its attempt, never shown to a user.
    """

    def __init__(self, rows: int, raw_bytes: int) -> None:
        super().__init__(f"{raw_bytes} raw bytes in a chunk of {rows} rows")
        self.rows = rows
        self.raw_bytes = raw_bytes
