"""What every task of an entity merge is told, takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from compactor.entities.datasets import Located
from compactor.entities.memory import EntityMemory
from compactor.entities.spec import EntityMergeSpec
from compactor.spark.shuffle.task import PLACE_BITS
from compactor.table.snapshot import Snapshot

PLACE: Final = (1 << PLACE_BITS) - 1
"""Bits of an entity's number that are its place at home."""

# Columns that travel beside those of entities, whose properties begin with a dot.
NODE: Final = "node"
LABEL: Final = "label"
GROUP: Final = "group"
TARGET: Final = "target"
RULE: Final = "rule"
TEXT_OF_VALUE: Final = "text"


@dataclass(frozen=True, slots=True)
class Context:
    """What every task is told. Picklable."""

    spec: EntityMergeSpec
    names: tuple[str, ...]
    """Of datasets, for errors."""
    staging: str
    """Address of a store."""
    run_id: str
    memory_limit_bytes: int
    """Of one task."""

    def memory(self) -> Callable[[int], None]:
        return EntityMemory(self.memory_limit_bytes).charging_part()


@dataclass(frozen=True, slots=True)
class Partition:
    """What a part keeps: keys in the staging place."""

    members: str
    """A line an entity, in the order of numbers."""
    entities: tuple[str | None, ...]
    """By dataset; None: there are none."""
    rows: tuple[int, ...]
    """By dataset."""
    groups: str | None
    """Which entities each group has; None: no rule has a value."""
    bytes: int
    """Of the entities' columns."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Partition:
        return cls(
            value["members"],
            tuple(value["entities"]),
            tuple(value["rows"]),
            value["groups"],
            value["bytes"],
        )


@dataclass(frozen=True, slots=True)
class DatasetPart:
    """Of a dataset: what one task reads."""

    dataset: int
    located: Located
    snapshot: Snapshot | None = None
    """Of a table: nothing but the fragments of the piece."""
