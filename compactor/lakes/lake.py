"""The interface to lakes: what publishing asks of a Parquet folder, a Delta table or an Iceberg table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import pyarrow as pa
from msgspec import Struct

from compactor.errors import UsageError
from compactor.lakes.pieces import parsed_name


class LakeKind(StrEnum):
    """The tables of other engines that a table can be published as."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


def check_names(kind: LakeKind, catalog: str | None, name: str | None) -> None:
    """Raises `UsageError` for the names of an Iceberg table with another kind of copy."""
    if kind is not LakeKind.ICEBERG and (catalog, name) != (None, None):
        raise UsageError("catalog and name are those of an Iceberg table: leave them out")


def parse_levels(text: str) -> int:
    """Parses `1+`, the levels to publish. Raises ValueError with the correct form."""
    match = re.fullmatch(r"([0-9]{1,2})\+", text)
    if match is None:
        raise ValueError(f"{text!r} is not of the form 1+, which means levels 1 and deeper")
    return int(match[1])


class LakeFile(Struct, frozen=True):
    """A file of a lake."""

    name: str
    rows: int
    size_bytes: int

    @property
    def piece(self) -> str:
        """The id of its piece; its own name if publishing did not name it."""
        parsed = parsed_name(self.name)
        return self.name if parsed is None else parsed[0]


class LakeState(Struct, frozen=True):
    """A lake at its newest version."""

    version: int
    """Grows with every commit to the lake."""
    table_version: int
    """The version of our table that was published last; 0 before the first."""
    schema: pa.Schema
    """Columns and their types."""
    files: Mapping[str, LakeFile]
    """The live files by name."""


class Swap(Struct, frozen=True, kw_only=True):
    """One commit to a lake: files that go, and files that come in their place."""

    removes: Sequence[LakeFile]
    adds: Sequence[LakeFile]
    keeps_rows: bool
    """Whether both have the same rows, so that readers that follow the lake need not look."""
    schema: pa.Schema
    """The columns of the lake from then on."""
    table_version: int | None
    """The version of our table that the lake has from then on; None if further commits follow."""


class LakeChangedError(Exception):
    """Another process has committed to the lake; nothing of the swap is visible."""


class Lake(Protocol):
    """A table of files that another engine reads. Its newest version is what its readers see."""

    folder: str
    """Prefix of its files' keys in the destination, empty or ending in `/`."""
    fills_columns: bool
    """Whether readers take columns that a file lacks as null."""
    is_followed: bool
    """Whether readers can follow its commits, so that it matters which of them change rows."""

    def types(self, schema: pa.Schema) -> pa.Schema:
        """Returns the columns with the types that they have in the lake.

        Raises `InputError` for a column whose values have no type there, or whose name is taken there.
        """
        ...

    def state(self) -> LakeState | None:
        """Returns the newest version; None if there is nothing at the destination yet.

        Raises `UsageError` if it holds something else, or the copy of another table.
        """
        ...

    def arranged(self, base: LakeState, schema: pa.Schema) -> pa.Schema:
        """Returns the columns in the order that the lake has after a swap on top of `base`."""
        ...

    def file_schema(self, base: LakeState, schema: pa.Schema) -> pa.Schema:
        """Returns the columns as files have them that are swapped in on top of `base`, with what the lake
        wants to be recorded of them."""
        ...

    def create(self, schema: pa.Schema) -> None:
        """Makes an empty lake, unless another process does at the same time."""
        ...

    def replace(self, base: LakeState, swap: Swap) -> None:
        """Commits a swap, whose added files are in place. Raises `LakeChangedError` if `base` is not the
        newest version any more."""
        ...

    def tidy(self, state: LakeState) -> None:
        """Removes files that no version from `state` on can have, if the lake has no vacuum of its own."""
        ...
