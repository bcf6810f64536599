"""Settings of writers: what they do while compactions lag behind."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from compactor.settings.model import Settings


class Reaction(StrEnum):
    """A writer's reaction to compaction debt."""

    WARN = "warn"
    """Report it and continue."""
    WAIT = "wait"
    """Pause while writers should slow down, wait while they should stop."""
    OFF = "off"


BackPressureReaction = Annotated[
    Reaction,
    Field(
        description="What writers do when compactions lag behind: warn and go on, wait until they have "
        "caught up, or (off) nothing."
    ),
]


class WriterSettings(Settings):
    """Settings of writers that are properties of a table."""

    back_pressure: BackPressureReaction = Reaction.WARN
