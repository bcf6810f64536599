"""Which numbers the log may hold.

Its checksums are no proof of who wrote it. A number that no writer makes is damage, and is refused as it is
read: before anything is counted, added up or planned by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from pydantic import NonNegativeInt, PositiveInt

from format.layout import BLOCK_HEADER_BYTES
from format.nodes import NODE_BYTES

MAX_INT64: Final = 2**63 - 1
MAX_LEVEL: Final = 64
"""The planner makes a level when the one above is over a target that at least doubles with each."""
MAX_OBJECT_BYTES: Final = 1 << 50
"""More than any store takes."""
MIN_ROW_GROUP_BYTES: Final = BLOCK_HEADER_BYTES + NODE_BYTES
"""What a row group takes in a fragment at least: a key chunk of one node, without payload."""
MAX_GROUP_ROWS: Final = 2**32 - 1
"""Of a row group: the format counts them in 32 bits."""
MAX_KEY_BYTES: Final = 1 << 20
"""The sort columns of one row take no more: the log holds the first and last key of every fragment whole."""
MAX_TTL_SECONDS: Final = 10**12
MAX_SKIP_BYTES: Final = 1 << 30
"""Of a column and row group: readers take no more of a whole object."""
_LAST_UNIX_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""

Natural: TypeAlias = Annotated[NonNegativeInt, msgspec.Meta(ge=0, le=MAX_INT64)]
UnixMs: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_LAST_UNIX_MS)]
Level: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_LEVEL)]
WindowSeconds: TypeAlias = Annotated[PositiveInt, msgspec.Meta(ge=1, le=MAX_INT64 // 10**9)]
"""Of a time window: its nanoseconds are counted in 64 bits."""
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
"""That something took."""


def check_number(name: str, number: Any, most: int = MAX_INT64, *, least: int = 0) -> None:
    """Raises TypeError or ValueError, which name it, unless it is an integer from `least` to `most`."""
    if type(number) is not int:
        raise TypeError(f"{name} is no integer")
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}, which is not from {least} to {most}")


def check_sum(name: str, numbers: Iterable[int]) -> None:
    """Raises ValueError, which names them, if together they are more than 64 bits count."""
    if (total := sum(numbers)) > MAX_INT64:
        raise ValueError(f"{name} together are {total}, more than {MAX_INT64}")


def unix_ms(name: str, number: Any) -> int:
    """The number. Raises as `check_number` unless it is a time that calendars know."""
    check_number(name, number, _LAST_UNIX_MS)
    return int(number)
