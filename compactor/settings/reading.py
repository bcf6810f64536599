"""Settings of scans, exports, searches and verifications."""

from __future__ import annotations

from pydantic import Field

from compactor.settings.fields import Threads
from compactor.settings.model import Settings


class ReadSettings(Settings):
    threads: Threads | None = Field(
        default=None,
        description="Threads that read and decode. Changes the time, never the rows. By default there are as "
        "many as this process has cores.",
    )
