"""Bounds of the numbers that the log may hold.

The log's checksums do not prove who wrote it. A number that no writer makes is damage, and is refused when it
is read: before anything is counted, summed or planned by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from pydantic import NonNegativeInt, PositiveInt

from compactor.settings.units import MAX_WINDOW_SECONDS
from lsm_fragment.blocks.layout import BLOCK_HEADER_BYTES
from lsm_fragment.encodings.node import NODE_BYTES

MAX_INT64: Final = 2**63 - 1
MAX_LEVEL: Final = 64
"""The deepest level: the planner adds one when the last exceeds a target that at least doubles with each."""
MAX_OBJECT_BYTES: Final = 1 << 50
"""Refuse larger objects: no store takes one."""
MIN_ROW_GROUP_BYTES: Final = BLOCK_HEADER_BYTES + NODE_BYTES
"""Stored bytes of the smallest row group: a key chunk of one node, without payload."""
MAX_GROUP_ROWS: Final = 2**32 - 1
"""Limit on the rows of a row group: the format counts them in 32 bits."""
MAX_KEY_BYTES: Final = 1 << 20
"""Limit on one row's sort columns, since the log holds every fragment's first and last key whole."""
MAX_TTL_SECONDS: Final = 10**12
MAX_SKIP_BYTES: Final = 1 << 30
"""Limit on a column's skip index in a row group: readers take no larger object whole."""
LAST_UNIX_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""

Natural: TypeAlias = Annotated[NonNegativeInt, msgspec.Meta(ge=0, le=MAX_INT64)]
UnixMs: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LAST_UNIX_MS)]
Level: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_LEVEL)]
WindowSeconds: TypeAlias = Annotated[PositiveInt, msgspec.Meta(ge=1, le=MAX_WINDOW_SECONDS)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
"""A duration in seconds."""


def check_number(name: str, number: Any, most: int = MAX_INT64, *, least: int = 0) -> None:
    """Raises ValueError naming the number unless it is an integer from `least` to `most`."""
    if type(number) is not int:
        raise ValueError(f"{name} is not an integer")
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}, which is not from {least} to {most}")


def check_sum(name: str, numbers: Iterable[int]) -> None:
    """Raises ValueError naming the numbers if their sum exceeds 64 bits."""
    if (total := sum(numbers)) > MAX_INT64:
        raise ValueError(f"{name} together are {total}, more than {MAX_INT64}")


def unix_ms(name: str, number: Any) -> int:
    """Returns the number. Raises as `check_number` does unless it is a time that calendars know."""
    check_number(name, number, LAST_UNIX_MS)
    return int(number)
