"""What can go wrong in a merge, beyond damaged inputs and lack of memory."""

from __future__ import annotations

from compactor.errors import DamagedInputError, DataError


class MergeCheckError(DataError):
    """Rows out do not equal rows in, or their hashes differ: nothing of the merge may be used."""


class InputMismatchError(DamagedInputError):
    """An input is not what the table's log says of it."""
