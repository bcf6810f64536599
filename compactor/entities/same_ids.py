"""The refusal of `identity: first` for entities that have one id and are not the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa

from compactor.entities.dataset_rows import columns_in, place_in
from compactor.entities.datasets import Located
from compactor.entities.expressions import ID
from compactor.entities.texts import quoted
from compactor.errors import ConfigError
from lsm_fragment import compute as pc

_CURE: Final = "add an equality set on `_id` or `$ids` of the datasets, or say identity: composite"


class SameIdError(ConfigError):
    """Entities of several datasets have the id `name`, and are not the same."""

    def __init__(self, *parts: str, name: str = "", datasets: Sequence[str] = ()) -> None:
        """datasets: their names."""
        super().__init__(*parts)
        self.name, self.datasets = name, tuple(datasets)

    @classmethod
    def of(cls, name: str, datasets: Sequence[str], places: Sequence[str] = ()) -> Self:
        """Returns the error. places: of the entities, with their datasets."""
        both = " and ".join(places or (f"dataset {dataset}" for dataset in datasets))
        return cls(
            f"identity: first: entities of {both} have the id {name!r} and are not the same: {_CURE}",
            name=name,
            datasets=datasets,
        )

    def to_json(self) -> dict[str, Any]:
        return {"same_id": self.name, "datasets": self.datasets}

    def placed(self, located: Sequence[Located | None]) -> Self:
        """Returns the error with the files and lines of the entities."""
        there = [at for at in located if at is not None and at.name in self.datasets]
        places = [f"dataset {at.shown}, {_place_of(at, self.name)}" for at in there]
        return self.of(self.name, self.datasets, places)


def check_tasks(summaries: Iterable[Mapping[str, Any]], located: Sequence[Located | None]) -> None:
    """Raises the error that a task met, with the places of the entities."""
    for said in summaries:
        if "same_id" in said:
            raise SameIdError.of(said["same_id"], said["datasets"]).placed(located)


def _place_of(located: Located, name: str) -> str:
    """Returns the place of the last row with an id, which is the one that counts."""
    wanted = quoted(pa.array([name]))[0]
    rows, found = 0, 0
    for columns, count in columns_in(located):
        at = np.flatnonzero(np.asarray(pc.fill_null(pc.equal(columns[ID], wanted), False)))
        if len(at):
            found = rows + int(at[-1])
        rows += count
    return place_in(located, found)
