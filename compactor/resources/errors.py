"""What can go wrong with memory and local disk."""

from __future__ import annotations

from compactor.errors import JobError


class MemoryLimitError(JobError):
    """The memory limit is too low for the work, everything spilled that can be."""


class LocalDiskError(JobError):
    """The local disk has no room for what has to be put aside, or failed."""
