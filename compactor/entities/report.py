"""What a run of an entity merge did, or would do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class EntityMergeReport:
    version: int = 0
    """Of the table after it; 0 if there is none."""
    entities_read: int = 0
    clusters: int = 0
    """Entities that come out in all, changed or not."""
    new: int = 0
    changed: int = 0
    replaced: int = 0
    """Ids that stand for nothing any more."""
    unchanged: int = 0
    next_updated: int = 0
    """The `_updated` of the next entity that will be written."""
    missing_datasets: tuple[str, ...] = ()
    """That are not there, and count as empty."""
    waiting_for: tuple[str, ...] = ()
    """Initial datasets that are not there yet: nothing was done."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
