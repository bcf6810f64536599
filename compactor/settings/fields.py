"""Types of settings that people write as texts: one parser for the command line, YAML and Spark's options."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from compactor.settings import units


def _parsed(parse: Callable[[str], float]) -> BeforeValidator:
    return BeforeValidator(lambda given: parse(given) if isinstance(given, str) else given)


Seconds = Annotated[float, _parsed(partial(units.duration_seconds, least_seconds=1)), Field(ge=1)]
"""Written as `90s`, `15m`, `6h`, `7d` or `2w`."""
Bytes = Annotated[int, _parsed(units.size_bytes)]
"""Written as `512MiB`, `2GiB` or a number of bytes."""


def written(text: str) -> Any:
    """Returns a default as people write it: the model parses it."""
    return text


def names(text: Any) -> Any:
    """Splits a text at its commas; leaves anything else as it is."""
    if not isinstance(text, str):
        return text
    return tuple(part for part in (part.strip() for part in text.split(",")) if part)
