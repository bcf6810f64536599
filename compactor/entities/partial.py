"""Merges the entities that changes touch, and leaves all others as the last run has merged them.

An entity that is new or changed touches its old cluster, and the clusters of entities that have one of its
values on the other side of a rule. An entity that is gone touches its old cluster. All links of other
clusters are what they were, and so are their rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from compactor.entities.cluster_figures import sizes_of
from compactor.entities.clusters import Clusters, cluster_ids, first_twice, signatures_of
from compactor.entities.comparing import Compared, NotProvenError
from compactor.entities.entities import U64, Entities
from compactor.entities.expressions import Operand, Values
from compactor.entities.matching import starts_of, values_of_rules
from compactor.entities.memo import KeptDataset, KeptValues, Memo
from compactor.entities.memory import Charge
from compactor.entities.output import Difference, WrittenRows, difference
from compactor.entities.remembering import are_plain
from compactor.entities.spec import EntityMergeSpec, Identity
from compactor.entities.texts import I64, TEXT
from lsm_fragment import compute as pc
from lsm_fragment.arrays.hashing import value_hashes

Mask = npt.NDArray[np.bool_]

_PARTS: Final = (256, 16, 1)
"""Look for a value that both sides of a rule have among one hash in so many first: most rules have many."""


class _Changed(Struct, frozen=True):
    """The entities of a dataset that are new or other than in the last run."""

    entities: Entities
    rows: I64
    """The input row of each."""


class Touched:
    """What changes touch."""

    def __init__(
        self,
        spec: EntityMergeSpec,
        memo: Memo,
        compared: Sequence[Compared],
        share: float,
        charge: Charge,
    ) -> None:
        """share: look at no more than this share of all entities.

        Raises `NotProvenError` if what is touched does not decide what changes.
        """
        self.spec, self.memo, self._compared, self._share = spec, memo, compared, share
        self._inverse = [
            _inverse(each.origins, len(kept.rows))
            for each, kept in zip(compared, memo.datasets, strict=True)
        ]
        self.entities = sum(len(each.origins) for each in compared)
        """Number of entities now."""
        self._are_as_they_were = [
            len(each.origins) == len(kept.rows)
            and np.array_equal(each.origins, np.arange(len(kept.rows)))
            for each, kept in zip(compared, memo.datasets, strict=True)
        ]
        """Which datasets have the rows of the last run, in its order."""
        self._after: dict[Operand, KeptValues] = {}
        new = [np.flatnonzero(each.origins < 0) for each in compared]
        gone = [np.flatnonzero(inverse < 0) for inverse in self._inverse]
        self._check_share(sum(map(len, (*new, *gone))))
        self._changed = [
            _Changed(*each.entities(rows)) for each, rows in zip(compared, new, strict=True)
        ]
        self._check_ids()
        self.clusters = np.zeros(memo.clusters, np.bool_)
        """The clusters of the last run that are touched."""
        for kept, rows in zip(memo.datasets, gone, strict=True):
            self.clusters[kept.clusters[rows]] = True
        self._values = self._touched_by_values(charge)
        self.rows = [
            np.flatnonzero((each.origins < 0) | self.clusters[kept.clusters[each.origins]])
            if len(kept.rows)
            else np.arange(len(each.origins))
            for each, kept in zip(compared, memo.datasets, strict=True)
        ]
        """The input rows of the entities to be merged anew, of each dataset."""
        self._check_share(sum(map(len, self.rows)))

    def _check_share(self, rows: int) -> None:
        if rows > self._share * max(self.entities, self.memo.entities):
            raise NotProvenError

    def _check_ids(self) -> None:
        """Raises `NotProvenError` if a changed entity has the id of one that stays, or an id with `|`; with
        `identity: first` of any dataset."""
        changed = [each.entities.ids.cast(TEXT) for each in self._changed]
        if self.spec.identity is Identity.FIRST:
            everywhere = pa.concat_arrays(changed)
            if first_twice(everywhere) is not None:
                raise NotProvenError
            changed = [everywhere] * len(changed)
        for ids, kept, inverse in zip(changed, self.memo.datasets, self._inverse, strict=True):
            if not len(ids):
                continue
            is_new = np.asarray(pc.is_in(kept.ids, value_set=ids))
            if not are_plain(ids) or (is_new & (inverse >= 0)).any():
                raise NotProvenError

    def _touched_by_values(self, charge: Charge) -> dict[Operand, tuple[I64, U64]]:
        """Touches the clusters of entities that have a value of a changed one on the other side of a rule.

        Returns the values of changed entities: input row and hash.
        """
        offsets = {dataset.alias: n for n, dataset in enumerate(self.spec.datasets)}
        entities = [changed.entities for changed in self._changed]
        starts = starts_of(entities)
        found: dict[Operand, tuple[I64, U64]] = {}
        opposite: dict[Operand, dict[Operand, U64]] = defaultdict(dict)

        def noted(operand: Operand, values: Values) -> U64:
            if operand not in found:
                number = offsets[operand.alias]
                rows = self._changed[number].rows[values.rows - starts[number]]
                found[operand] = rows, value_hashes(values.texts)
            return found[operand][1]

        for rule, sides in zip(
            self.spec.rules, values_of_rules(self.spec, entities, charge), strict=True
        ):
            hashes = [noted(operand, values) for operand, values in zip(rule, sides, strict=True)]
            opposite[rule.left][rule.right] = hashes[1]
            opposite[rule.right][rule.left] = hashes[0]
        for operand, others in opposite.items():
            kept, number = self.memo.values[operand], offsets[operand.alias]
            rows = kept.rows[_is_in(kept.hashes, np.concatenate(list(others.values())))]
            self.clusters[self.memo.datasets[number].clusters[rows]] = True
        return found

    def merged_anew(self) -> tuple[list[Entities], list[I64]]:
        """Returns the entities to merge, and their input rows."""
        read = [each.entities(rows) for each, rows in zip(self._compared, self.rows, strict=True)]
        return [entities for entities, _ in read], [rows for _, rows in read]

    def before(self) -> WrittenRows:
        """Returns the rows that the table has of the touched clusters."""
        parts = []
        for number, kept in enumerate(self.memo.datasets):
            rows: I64 = np.flatnonzero(self.clusters[kept.clusters])
            parts.append(
                pa.table(
                    {
                        "cluster": kept.clusters[rows],
                        "dataset": np.full(len(rows), number),
                        "id": kept.ids.take(pa.array(rows)),
                        "deleted": kept.deleted[rows],
                        "hash": kept.entities[rows],
                    }
                )
            )
        order = [(name, "ascending") for name in ("cluster", "dataset", "id")]
        members = pa.concat_tables(parts).sort_by(order).combine_chunks()
        cluster = members["cluster"].to_numpy()
        firsts = np.flatnonzero(np.diff(cluster, prepend=-1))
        counts = np.diff(np.append(firsts, len(cluster)))
        ids = pa.chunked_array(members["id"]).combine_chunks().cast(TEXT)
        hashes = members["hash"].to_numpy()
        return WrittenRows(
            cluster_ids(self.spec.identity, members["dataset"].to_numpy(), ids, counts),
            pa.array(members["deleted"].to_numpy()[firsts]),
            pa.array(signatures_of(self.spec, hashes, counts)),
        )

    def difference(self, clusters: Clusters) -> Difference:
        """Compares clusters of the entities that are merged anew with the rows of touched clusters."""
        found = difference(clusters.ids, clusters.deleted, clusters.signatures, self.before())
        return replace(found, living_before=self.memo.clusters - self.memo.deleted)

    def sizes(self, clusters: Clusters) -> tuple[int, dict[int, int]]:
        """Returns the number of all clusters, and of living ones by their number of entities.

        clusters: of the entities that are merged anew.
        """
        stay = ~self.clusters
        counts = np.concatenate([self.memo.sizes()[stay], clusters.counts])
        deleted = np.concatenate([self.memo.is_deleted()[stay], np.asarray(clusters.deleted)])
        return len(counts), sizes_of(counts, pa.array(deleted))

    def check_rules(self, matches: Sequence[int]) -> None:
        """Raises `NotProvenError` if a rule matches nothing, as far as is known: a run has to say why.

        matches: values of each rule that entities which are merged anew have in common.
        """
        for rule, known in zip(self.spec.rules, matches, strict=True):
            if known:
                continue
            left, right = (self._values_after(operand) for operand in rule)
            if not _match(left, right, of_one=rule.left.alias == rule.right.alias):
                raise NotProvenError

    def _values_after(self, operand: Operand) -> KeptValues:
        """Returns the values of a side of a rule now."""
        if operand not in self._after:
            number = [dataset.alias for dataset in self.spec.datasets].index(operand.alias)
            kept = self.memo.values[operand]
            if not self._are_as_they_were[number]:
                rows, hashes = self._values[operand]
                moved = self._inverse[number][kept.rows]
                stays = moved >= 0
                kept = KeptValues(
                    np.concatenate([moved[stays], rows]),
                    np.concatenate([kept.hashes[stays], hashes]),
                )
            self._after[operand] = kept
        return self._after[operand]

    def memo_after(
        self,
        entities: Sequence[Entities],
        rows: Sequence[I64],
        clusters: Clusters,
        hashes: U64,
    ) -> Memo:
        """Returns the memo of this run. entities, rows: from `merged_anew`. hashes: `member_hashes`."""
        stay = ~self.clusters
        number = np.cumsum(stay) - 1
        first = int(np.count_nonzero(stay))
        anew = np.empty(len(hashes), np.int64)
        anew[clusters.members] = np.repeat(
            np.arange(first, first + len(clusters.counts)), clusters.counts
        )
        starts = starts_of(entities)
        datasets = []
        for n, (each, kept) in enumerate(zip(self._compared, self.memo.datasets, strict=True)):
            own, at = slice(starts[n], starts[n + 1]), rows[n]
            of_kept = number[kept.clusters]
            if self._are_as_they_were[n]:
                of_kept[at] = anew[own]
                datasets.append(replace(kept, parts=tuple(each.parts), clusters=of_kept))
                continue
            source = each.origins.copy()
            source[at] = len(kept.rows) + np.arange(len(at))
            datasets.append(
                KeptDataset(
                    parts=tuple(each.parts),
                    rows=each.rows,
                    ids=pa.concat_arrays([kept.ids, entities[n].ids]).take(pa.array(source)),
                    deleted=np.concatenate([kept.deleted, entities[n].deleted])[source],
                    entities=np.concatenate([kept.entities, hashes[own]])[source],
                    clusters=np.concatenate([of_kept, anew[own]])[source],
                )
            )
        values = {operand: self._values_after(operand) for operand in self.memo.values}
        count = first + len(clusters.counts)
        return Memo(datasets=tuple(datasets), values=values, clusters=count)


def _is_in(hashes: U64, wanted: U64) -> Mask:
    if not len(wanted):
        return np.zeros(len(hashes), np.bool_)
    return np.asarray(pc.is_in(pa.array(hashes), value_set=pa.array(wanted)))


def _inverse(origins: I64, rows: int) -> I64:
    """Returns the row now of each row of the last run, or -1."""
    found = np.full(rows, -1)
    is_known = origins >= 0
    found[origins[is_known]] = np.flatnonzero(is_known)
    return found


def _match(left: KeptValues, right: KeptValues, *, of_one: bool) -> bool:
    """Returns whether two entities have a value in common, on the sides of a rule. of_one: whether both sides
    are of one dataset, so that an entity may be there on both."""
    for part in _PARTS:
        own, other = (v.hashes % np.uint64(part) == 0 for v in (left, right))
        order = np.lexsort((right.rows[other], right.hashes[other]))
        rows, hashes = right.rows[other][order], right.hashes[other][order]
        wanted = left.hashes[own]
        start, stop = (np.searchsorted(hashes, wanted, side) for side in ("left", "right"))
        is_there = start < stop
        if of_one:
            first, last = rows[start[is_there]], rows[stop[is_there] - 1]
            entities = left.rows[own][is_there]
            is_there = (first != entities) | (last != entities)
        if is_there.any():
            return True
    return False
