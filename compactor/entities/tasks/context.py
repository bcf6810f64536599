"""Defines what every task of an entity merge gets and gives."""

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

# Columns that travel beside those of entities. Names of properties begin with a dot, so they never clash.
NODE: Final = "node"
LABEL: Final = "label"
GROUP: Final = "group"
TARGET: Final = "target"
RULE: Final = "rule"
TEXT_OF_VALUE: Final = "text"


@dataclass(frozen=True, slots=True)
class Context:
    """What every task needs to know. Picklable."""

    spec: EntityMergeSpec
    names: tuple[str, ...]
    """Names of datasets, for errors."""
    staging: str
    """Address of the staging store."""
    run_id: str
    memory_limit_bytes: int
    """The memory limit of one task."""

    def memory(self) -> Callable[[int], None]:
        return EntityMemory(self.memory_limit_bytes).charging_part()


@dataclass(frozen=True, slots=True)
class Partition:
    """What a home keeps: keys of objects in the staging place, and figures."""

    members: str
    """Object with one line per entity, in the order of numbers."""
    entities: tuple[str | None, ...]
    """Objects with the entities, by dataset; None if the dataset has none here."""
    rows: tuple[int, ...]
    """Number of entities by dataset."""
    groups: str | None
    """Object with the entities of each group; None if no rule has a value."""
    bytes: int
    """Bytes of the entities' columns."""

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
    """A part of a dataset that one task reads."""

    dataset: int
    located: Located
    snapshot: Snapshot | None = None
    """The table's snapshot, reduced to the fragments of this part; None for a file."""
