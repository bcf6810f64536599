"""Settings of skip indexes: the columns that have one, and its maximum size. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final, Self

import msgspec
import pyarrow as pa
from pyarrow import types as pt
from pydantic import PositiveInt, Strict

from compactor.common.setting_keys import SKIP_INDEX
from compactor.errors import UsageError
from lsm_fragment.arrays.types import is_string, storage_type

DEFAULT_BYTES: Final = 64 << 10


class SkipKind(StrEnum):
    """The kind of a skip index."""

    BLOOM = "bloom"
    """A split-block Bloom filter, for point lookups among many distinct values."""
    VALUES = "values"
    """The values themselves, truncated to the size limit, for repeated texts and LIKE."""


@dataclass(frozen=True, slots=True)
class SkipSpec:
    """The skip indexes of one table."""

    columns: tuple[tuple[str, Annotated[SkipKind, Strict(False)]], ...] = ()
    """Kinds by stored column name."""
    bytes_per_row_group: PositiveInt = DEFAULT_BYTES
    """Maximum size per column and row group; a larger index is not stored."""

    def to_json(self) -> dict[str, Any]:
        return {
            "columns": {name: str(kind) for name, kind in self.columns},
            "bytes_per_row_group": self.bytes_per_row_group,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            tuple((name, SkipKind(kind)) for name, kind in value["columns"].items()),
            msgspec.convert(value["bytes_per_row_group"], int),
        )


NONE: Final = SkipSpec()


def can_index(kind: SkipKind, dtype: pa.DataType) -> bool:
    """Returns whether columns of a storage type can have a skip index of this kind."""
    if pt.is_null(dtype):
        return True
    if kind is SkipKind.VALUES:
        return is_string(dtype)
    return not (
        pt.is_nested(dtype)
        or pt.is_floating(dtype)
        or pt.is_interval(dtype)
        or pt.is_boolean(dtype)
    )


def check_skip_column(name: str, kind: SkipKind, dtype: pa.DataType) -> None:
    """Raises `UsageError` for a type that the kind does not support."""
    if can_index(kind, storage_type(dtype)):
        return
    fits = (
        "for values it has to be text"
        if kind is SkipKind.VALUES
        else "bloom is for texts, bytes, whole numbers, decimals and times"
    )
    raise UsageError(SKIP_INDEX, f": column {name!r} is {dtype}; {fits}")
