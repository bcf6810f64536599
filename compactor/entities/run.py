"""The parameters of an entity merge run, independent of the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Annotated

from pydantic import AllowInfNan, PlainValidator, PositiveInt

from compactor.entities.spec import EntityMergeSpec
from compactor.settings.messages import shown
from compactor.stores.base import Store

StepProgress = Callable[[str], None]
"""Called with the name of each step as it starts."""


def _path(given: object) -> str:
    if isinstance(given, str | PathLike) and isinstance(path := fspath(given), str):
        return path
    raise ValueError(f"expected a path, got {shown(given)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityRun:
    """The inputs, the output table and the options of a run."""

    spec: EntityMergeSpec
    store: Store | None
    """Store of the table; None only for what writes nothing."""
    folder: Annotated[str | PathLike[str], PlainValidator(_path)] = "."
    """Folder of datasets not listed in `spec.sources`."""
    full: bool = False
    """Rewrites every entity, with the current list of datasets."""
    allow_changes: bool = False
    """Allows a dataset to be gone, and any share of the table's entities to be replaced or deleted."""
    tombstone_retention_seconds: Annotated[float, AllowInfNan(True)] | None = None
    """How long replaced ids stay in the table; `math.inf` for ever; None: as the table has it."""
    memory_limit_bytes: PositiveInt | None = None
    """Memory limit for entities, in this process or per Spark task, checked while reading. None means no
    limit in this process, and 1 GiB in a task."""
    on_progress: StepProgress = lambda _what: None
