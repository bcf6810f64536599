"""Settings of scans, exports, searches and verifications."""

from __future__ import annotations

from pydantic import Field

from compactor.settings.fields import Threads
from compactor.settings.model import Settings


class ReadSettings(Settings):
    skip_quarantined: bool = Field(
        default=False,
        description="Leave out the fragments in quarantine, and say how many rows they have. Without it a "
        "fragment that is damaged or gone is an error.",
    )
    threads: Threads | None = Field(
        default=None,
        description="Threads that read and decode. Changes the time, never the rows. By default one per core "
        "of this process.",
    )
