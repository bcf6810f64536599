"""Errors of a merge, beside those for damaged inputs and lack of memory."""

from __future__ import annotations

from compactor.errors import DamagedInputError, DataError


class MergeCheckError(DataError):
    """Rows out differ from rows in, or their hashes differ: no output of the merge may be used."""


class InputMismatchError(DamagedInputError):
    """An input differs from what the table's log says of it."""
