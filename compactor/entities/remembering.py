"""Makes the memo of a run that has read all entities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from compactor.entities.clusters import Clusters, first_twice
from compactor.entities.entities import U64, Entities
from compactor.entities.expressions import Operand, Values
from compactor.entities.matching import starts_of
from compactor.entities.memo import KeptDataset, KeptValues, Memo
from compactor.entities.reading import RowNotes
from compactor.entities.spec import EntityMergeSpec, Identity, Rule
from compactor.entities.texts import I64, TEXT
from lsm_fragment import compute as pc
from lsm_fragment.arrays.hashing import value_hashes


class Notes:
    """What a run sees on its way."""

    def __init__(self, datasets: int, started_ns: int) -> None:
        """datasets: their number. started_ns: when the run started, in Unix time."""
        self.rows = [RowNotes(started_ns) for _ in range(datasets)]
        self._values: dict[Operand, tuple[I64, U64]] = {}

    def add_values(self, rule: Rule, sides: tuple[Values, Values]) -> None:
        for operand, values in zip(rule, sides, strict=True):
            if operand not in self._values:
                self._values[operand] = values.rows, value_hashes(values.texts)

    def memo(
        self,
        spec: EntityMergeSpec,
        datasets: Sequence[Entities],
        clusters: Clusters,
        hashes: U64,
    ) -> Memo | None:
        """Returns the memo; None unless each row is one entity whose id tells it from all others: of its
        dataset, with `identity: first` of any.

        hashes: `member_hashes`.
        """
        if spec.identity is Identity.FIRST:
            everywhere = pa.concat_arrays([dataset.ids.cast(TEXT) for dataset in datasets])
            if first_twice(everywhere) is not None:
                return None
        offsets = {dataset.alias: number for number, dataset in enumerate(spec.datasets)}
        starts = starts_of(datasets)
        of_entity = np.empty(int(starts[-1]), np.int64)
        of_entity[clusters.members] = np.repeat(np.arange(len(clusters.counts)), clusters.counts)
        kept = []
        for dataset, notes, start in zip(datasets, self.rows, starts, strict=False):
            rows = np.concatenate([np.zeros(0, np.uint64), *notes.hashes])
            if len(rows) != dataset.rows or not are_plain(dataset.ids):
                return None
            back = np.empty(len(rows), np.int64)
            back[notes.order] = np.arange(len(rows))
            kept.append(
                KeptDataset(
                    parts=tuple(notes.parts),
                    rows=rows,
                    ids=dataset.ids.take(pa.array(back)),
                    deleted=dataset.deleted[back],
                    entities=hashes[start + back],
                    clusters=of_entity[start + back],
                )
            )
        values = {
            operand: KeptValues(self.rows[n].order[numbers - starts[n]], hashes)
            for operand, (numbers, hashes) in self._values.items()
            for n in [offsets[operand.alias]]
        }
        return Memo(datasets=tuple(kept), values=values, clusters=len(clusters.counts))


def are_plain(ids: pa.Array) -> bool:
    """Returns whether composite ids of such ids cannot collide."""
    return not pc.any(pc.match_substring(ids.cast(TEXT), "|")).as_py()
