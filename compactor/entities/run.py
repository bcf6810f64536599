"""States one run of an entity merge, wherever it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compactor.entities.spec import EntityMergeSpec
from compactor.stores.base import Store

StepProgress = Callable[[str], None]
"""Called with the name of the step that begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityRun:
    """What is merged, and into which table."""

    spec: EntityMergeSpec
    store: Store | None
    """The table's store; None only for a dry run that would write a new table."""
    folder: str = "."
    """The place of datasets that `spec.sources` does not name."""
    full: bool = False
    """Whether every entity is written anew, and the datasets are taken as they are now."""
    memory_limit_bytes: int | None = None
    """Entities that would take more are refused while they are read: in this process, or in one task of
    Spark. None is no limit in this process, and 1 GiB in a task."""
    on_progress: StepProgress = lambda _what: None
