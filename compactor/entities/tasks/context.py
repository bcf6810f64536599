"""Input and output types of the tasks of an entity merge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from compactor.common.conversion import convertible
from compactor.common.plain_values import plain_dict
from compactor.entities.datasets import Located
from compactor.entities.expressions import ID
from compactor.entities.matching import Aside
from compactor.entities.memory import EntityMemory
from compactor.entities.spec import EntityMergeSpec
from compactor.spark.shuffle.task import PLACE_BITS
from compactor.table.snapshot import Snapshot
from lsm_fragment.keys.sort_schema import SortColumn

PLACE: Final = (1 << PLACE_BITS) - 1
"""Mask of an entity number's position at home."""

BY_ID: Final = (SortColumn(ID),)
"""The order of clusters, by which tasks divide them to fold and number them."""

# Columns beside the properties, whose names begin with a dot and so never clash.
NODE: Final = "node"
LABEL: Final = "label"
GROUP: Final = "group"
TARGET: Final = "target"
RULE: Final = "rule"
TEXT_OF_VALUE: Final = "text"
IS_NEW: Final = "is_new"
ROOT: Final = "root"
"""An id without the numbers at its end, by which ids meet that could be given twice."""


class Context(Struct, frozen=True, kw_only=True):
    """Input of every task. Picklable."""

    spec: EntityMergeSpec
    names: tuple[str, ...]
    """Dataset names, for errors."""
    staging: str
    """Address of the staging store."""
    run_id: str
    memory_limit_bytes: int
    """Memory limit per task."""
    texts: tuple[str, ...] = ()
    """Texts by which users name entities."""
    numbers: tuple[int, ...] = ()
    """Number of each dataset, which it keeps in all runs; empty unless ids stay."""
    aside: tuple[Aside, ...] = ()
    """Values of each rule that link nothing, once they are known."""

    def memory(self) -> Callable[[int], None]:
        return EntityMemory(self.memory_limit_bytes).charging_part()


@convertible
class Partition(Struct, frozen=True):
    """The contents of a home: keys in the staging store, and figures."""

    members: str
    """Object with one line per entity, by number."""
    entities: tuple[str | None, ...]
    """Objects with the entities, by dataset; None if empty."""
    rows: tuple[int, ...]
    """Entity count by dataset."""
    groups: str | None
    """Object with the entities of each group; None without rule values."""
    bytes: int
    """Size of the entities' columns."""

    def to_json(self) -> dict[str, Any]:
        return plain_dict(self)


class DatasetPart(Struct, frozen=True):
    """The part of a dataset that one task reads."""

    dataset: int
    located: Located
    snapshot: Snapshot | None = None
    """The table's snapshot, reduced to this part's fragments; None for a file."""
