"""Types of settings that users write as text: one parser for the command line, YAML and Spark's options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any, Final, get_args

from annotated_types import Ge, Le
from msgspec import Struct
from pydantic import BeforeValidator, Field
from pydantic.fields import FieldInfo

from compactor.settings import units
from lsm_fragment.names import parse_name, split_outside_quotes

TASK_MEMORY_BYTES: Final = 512 << 20
"""Default memory limit of every kind of task."""


class Written(Struct, frozen=True):
    """The textual form of a type's values, for help texts."""

    metavar: str
    show: Callable[[Any], str] = str
    """Writes a default or a bound."""


def kinds_in(annotation: Any) -> Iterator[Any]:
    """Yields the types and the metadata in an annotation."""
    yield annotation
    for part in get_args(annotation):
        yield from kinds_in(part)


def written_as(field: FieldInfo) -> Written | None:
    """Returns the textual form of a setting whose values are texts with units; None for others."""
    kinds = (*field.metadata, *kinds_in(field.annotation))
    return next((kind for kind in kinds if isinstance(kind, Written)), None)


def text_of(field: FieldInfo, value: Any) -> str:
    """Writes a setting's value as users do."""
    written = written_as(field)
    if written is not None:
        return written.show(value)
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def parsed(parse: Callable[[str], object]) -> BeforeValidator:
    """Returns a validator that parses strings and passes other values through."""
    return BeforeValidator(lambda given: parse(given) if isinstance(given, str) else given)


_DURATION: Final = Written("DURATION", units.exact_duration_text)
Duration = Annotated[float, parsed(units.duration_seconds), Field(ge=0), _DURATION]
"""Seconds, written as `90s`, `15m`, `6h`, `7d`, `2w` or `0`."""
Seconds = Annotated[
    float, parsed(partial(units.duration_seconds, min_seconds=1)), Field(ge=1), _DURATION
]
"""A duration of at least one second."""
WindowSeconds = Annotated[
    float,
    parsed(partial(units.duration_seconds, min_seconds=1, max_seconds=units.MAX_WINDOW_SECONDS)),
    Field(ge=1, le=units.MAX_WINDOW_SECONDS),
    _DURATION,
]
"""The length of a time window."""
Bytes = Annotated[
    int, parsed(units.size_bytes), Field(le=1 << 60), Written("SIZE", units.size_text)
]
"""Written as `512MiB`, `2GiB` or a number of bytes; an exbibyte at most, so that sums fit into 64 bits."""
Rate = Annotated[
    int,
    parsed(units.bytes_per_second),
    Written("SIZE/s", lambda rate: f"{units.size_text(rate)}/s"),
]
"""Bytes a second, written as `20MiB/s`."""
Threads = Annotated[int, Ge(1), Le(1024)]
"""Number of threads; by default the number of cores of the process or the task."""
FOLDER: Final = Written("DIRECTORY")
Folder = Annotated[str, FOLDER]
"""A folder on local disk."""


Name = Annotated[str, parsed(parse_name)]
"""The name of a column, optionally quoted as in a list."""


def listed(given: Any) -> tuple[str, ...]:
    """Splits a comma-separated text, or a sequence of such texts. Parts keep their quotes."""
    texts = [given] if isinstance(given, str) else given
    return tuple(part for text in texts for part in split_outside_quotes(text, ","))


def names(given: Any) -> tuple[str, ...]:
    """Returns the names in a comma-separated text, or in a sequence of such texts. Raises ValueError."""
    return tuple(map(parse_name, listed(given)))
