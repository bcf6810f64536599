"""Types of settings that people write as texts: one parser for the command line, YAML and Spark's options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final

from annotated_types import Ge, Le
from pydantic import BeforeValidator, Field

from compactor.settings import units

TASK_MEMORY_BYTES: Final = 512 << 20
"""The default memory limit of a task, whatever the task does."""


@dataclass(frozen=True, slots=True)
class Written:
    """How people write the values of a type, for help texts."""

    metavar: str
    show: Callable[[Any], str] = str
    """Writes a default or a bound."""


def parsed(parse: Callable[[str], object]) -> BeforeValidator:
    """Returns a validator that parses texts and leaves other values as they are."""
    return BeforeValidator(lambda given: parse(given) if isinstance(given, str) else given)


_DURATION: Final = Written("DURATION", units.duration_text)
Duration = Annotated[float, parsed(units.duration_seconds), Field(ge=0), _DURATION]
"""Seconds, written as `90s`, `15m`, `6h`, `7d`, `2w` or `0`."""
Seconds = Annotated[
    float, parsed(partial(units.duration_seconds, least_seconds=1)), Field(ge=1), _DURATION
]
"""A duration of a second at least."""
WindowSeconds = Annotated[
    float,
    parsed(partial(units.duration_seconds, least_seconds=1, most_seconds=units.MAX_WINDOW_SECONDS)),
    Field(ge=1, le=units.MAX_WINDOW_SECONDS),
    _DURATION,
]
"""The length of a time window."""
Bytes = Annotated[int, parsed(units.size_bytes), Written("SIZE", units.size_text)]
"""Written as `512MiB`, `2GiB` or a number of bytes."""
Rate = Annotated[
    int,
    parsed(units.bytes_per_second),
    Written("SIZE/s", lambda rate: f"{units.size_text(rate)}/s"),
]
"""Bytes a second, written as `20MiB/s`."""
Threads = Annotated[int, Ge(1), Le(1024)]
"""How many threads work at a time. Where none is said, as many as the process or the task has cores."""
FOLDER: Final = Written("DIRECTORY")
Folder = Annotated[str, FOLDER]
"""A folder on local disk."""


def names(text: Any) -> Any:
    """Splits a text at its commas; leaves anything else as it is."""
    if not isinstance(text, str):
        return text
    return tuple(part for part in (part.strip() for part in text.split(",")) if part)
