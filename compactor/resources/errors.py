"""Errors of memory and local disk."""

from __future__ import annotations

from compactor.errors import JobError


class MemoryLimitError(JobError):
    """The memory limit is too low for the work even after spilling everything possible."""


class LocalDiskError(JobError):
    """The local disk is full or failed while spilling."""
