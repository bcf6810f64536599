"""Settings of a vacuum."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from compactor.settings.fields import Duration
from compactor.settings.model import Settings


class VacuumSettings(Settings):
    """Settings of a vacuum."""

    of_run: ClassVar[frozenset[str]] = frozenset({"allow_shrinking", "dry_run", "deleters"})

    grace_seconds: Duration = Field(
        default=86_400.0, description="Uncommitted attempts that began longer ago count as dead."
    )
    retain_seconds: Duration = Field(
        default=86_400.0, description="Keep versions readable that were current within this time."
    )
    allow_shrinking: bool = Field(
        default=False,
        description="Remove older versions although the newer ones have less than half of their rows (with "
        "row policies that merge: a twentieth).",
    )
    dry_run: bool = Field(default=False, description="Count the objects, and remove nothing.")
    deleters: int = 16
    """Requests at a time; 1 starts no threads."""
