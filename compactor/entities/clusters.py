"""Builds clusters from components: ordered members, ids, and signatures that reveal changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from compactor.entities.cluster_figures import CommonValue, commonest_in
from compactor.entities.entities import U64, Entities, names_of
from compactor.entities.matching import Aside, starts_of
from compactor.entities.same_ids import SameIdError
from compactor.entities.spec import EntityMergeSpec, Identity, OnTooMany
from compactor.entities.texts import I64, TEXT, codes_of
from compactor.errors import ConfigError, JobError
from compactor.rows.bounded_keys import keys_of
from lsm_fragment import compute as pc
from lsm_fragment.arrays.hashing import mix, value_hashes
from lsm_fragment.arrays.json_texts import text_scalar
from lsm_fragment.arrays.nested import build_list

Mask = npt.NDArray[np.bool_]


class Clusters(Struct, frozen=True):
    """Clusters of equal entities. Members are entity numbers as in `matching`."""

    members: I64
    """Concatenated members of all clusters; within a cluster ascending by dataset, then id.

    Shape (entities,).
    """
    counts: I64
    """Members per cluster. Shape (clusters,)."""
    ids: pa.Array
    """Unique ids, as large strings."""
    deleted: pa.Array
    """Whether the cluster is a single deleted entity. Boolean."""
    signatures: I64

    def members_of(self, clusters: I64) -> tuple[I64, I64]:
        """Returns the members of these clusters, in this order, and the count of each."""
        starts = np.cumsum(self.counts) - self.counts
        counts = self.counts[clusters]
        ends = np.cumsum(counts)
        within = np.arange(int(counts.sum())) - np.repeat(ends - counts, counts)
        return self.members[np.repeat(starts[clusters], counts) + within], counts


def clusters_of(
    spec: EntityMergeSpec,
    datasets: Sequence[Entities],
    labels: I64,
    hashes: U64,
    aside: Sequence[Aside] = (),
) -> Clusters:
    """Builds clusters. labels: per entity, the first entity of its component. hashes: `member_hashes`. aside:
    values that an error does not name.

    Raises `JobError` for a cluster of more than `max_merged` members, `ConfigError` for duplicate ids.
    """
    starts = starts_of(datasets)
    members = np.argsort(labels, kind="stable")
    firsts = np.flatnonzero(np.diff(labels[members], prepend=-1))
    counts = np.diff(np.append(firsts, len(members)))
    _check_size(spec, datasets, members, firsts, counts, aside)
    deleted = np.concatenate([np.zeros(0, np.bool_), *(d.deleted for d in datasets)])[
        members[firsts]
    ]
    all_ids = pa.concat_arrays([pa.array([], TEXT), *(d.ids for d in datasets)])
    offsets = np.repeat(np.arange(len(datasets)), np.diff(starts))
    ids = cluster_ids(spec.identity, offsets[members], all_ids.take(pa.array(members)), counts)
    if spec.identity is Identity.FIRST:
        kept = _kept_by_first(spec, ids, deleted, offsets[members[firsts]])
        members = members[np.repeat(kept, counts)]
        counts, deleted, ids = counts[kept], deleted[kept], ids.filter(pa.array(kept))
    elif spec.identity is Identity.COMPOSITE and pc.any(pc.match_substring(all_ids, "|")).as_py():
        # without "|", ids are unique
        _check_composite(ids)
    signatures = signatures_of(spec, hashes[members], counts)
    return Clusters(members, counts, ids, pa.array(deleted), signatures)


def _check_size(
    spec: EntityMergeSpec,
    datasets: Sequence[Entities],
    members: I64,
    firsts: I64,
    counts: I64,
    aside: Sequence[Aside],
) -> None:
    if not len(counts) or (count := int(counts.max())) <= spec.max_merged:
        return
    number = int(members[firsts[int(counts.argmax())]])
    starts = starts_of(datasets)
    dataset = int(np.searchsorted(starts, number, "right")) - 1
    entity = datasets[dataset].ids[number - int(starts[dataset])]
    first = int(firsts[int(counts.argmax())])
    values = commonest_in(spec, datasets, members[first : first + count], aside)
    raise too_many(spec, count, f"{entity} of dataset {spec.datasets[dataset].name}", values)


def cluster_ids(identity: Identity, offsets: I64, ids: pa.Array, counts: I64) -> pa.Array:
    """Returns the ids of clusters from those of their members. offsets: of the members' datasets."""
    if identity is not Identity.COMPOSITE:
        firsts = np.cumsum(counts) - counts
        offsets, ids = offsets[firsts], ids.take(pa.array(firsts))
        if identity is Identity.FIRST:
            return ids
        counts = np.ones(len(counts), np.int64)
    parts = names_of(offsets, ids)
    lists = build_list(pa.large_list(TEXT), counts, parts, None)
    joined = pc.binary_join(lists, text_scalar("|"))
    return joined if identity is Identity.COMPOSITE else keys_of(joined)


def _check_composite(ids: pa.Array) -> None:
    twice = first_twice(ids)
    if twice is not None:
        raise ConfigError(
            f"identity: two entities would both have the id {twice!r}, because ids of the datasets hold '|' "
            "and digits: change those ids, or say identity: first"
        )


def _kept_by_first(spec: EntityMergeSpec, ids: pa.Array, deleted: Mask, datasets: I64) -> Mask:
    """Returns which clusters to emit with `identity: first`. datasets: of the first members.

    Skips a deleted entity if another entity has its id, because the id still exists.
    """
    living = ids.filter(pa.array(~deleted))
    twice = first_twice(living)
    if twice is not None:
        having = np.asarray(pc.equal(ids, twice)) & ~deleted
        names = tuple(spec.datasets[n].name for n in np.unique(datasets[having]))
        raise SameIdError.of(twice, names)
    codes = codes_of(ids)
    order = np.lexsort((np.arange(len(codes)), deleted))
    first = np.full(int(codes.max()) + 1 if len(codes) else 0, -1, np.int64)
    first[codes[order][::-1]] = order[::-1]
    kept: Mask = first[codes] == np.arange(len(codes))
    return kept


def kept_of(spec: EntityMergeSpec, ids: pa.Array, deleted: Mask, datasets: I64) -> Mask:
    """Returns which clusters to emit, of clusters with these ids that different tasks built.

    ids, deleted, datasets: in the order of the datasets of the first members. Raises `ConfigError` for
    duplicate ids.
    """
    if spec.identity is Identity.FIRST:
        return _kept_by_first(spec, ids, deleted, datasets)
    _check_composite(ids)
    return np.ones(len(ids), np.bool_)


def too_many(
    spec: EntityMergeSpec, count: int, first: str, values: Sequence[CommonValue]
) -> JobError:
    """Returns the error for a cluster of `count` entities. first: one of them. values: its commonest."""
    why = f"; the commonest value is {values[0]}" if values else ""
    one_does = values and values[0].entities > spec.max_merged
    cure = "or raise max_merged"
    if one_does and spec.on_too_many is OnTooMany.REFUSE:
        cure = "raise max_merged, or say on_too_many: ignore_value"
    return JobError(
        f"{count:,} entities would become one (the first is {first}), max_merged is {spec.max_merged:,}: "
        f"nothing was written{why}; look for a rule that holds of too many, {cure}"
    )


def first_twice(ids: pa.Array) -> str | None:
    """Returns an id that comes more than once, the first of them."""
    coded = ids.dictionary_encode()
    if len(coded.dictionary) == len(ids):
        return None
    number = int(np.argmax(np.bincount(np.asarray(coded.indices)) > 1))
    return str(coded.dictionary[number])


def member_hashes(datasets: Sequence[Entities]) -> U64:
    """Hashes each entity with its dataset, in the order of entity numbers."""
    rows = np.diff(starts_of(datasets))
    offsets = np.repeat(np.arange(1, len(datasets) + 1, dtype=np.uint64), rows)
    own = np.concatenate([np.zeros(0, np.uint64), *(d.hashes() for d in datasets)])
    return mix(own + mix(offsets))


def signatures_of(spec: EntityMergeSpec, hashes: U64, counts: I64) -> I64:
    """Hashes each cluster's members, including their datasets, and the fold settings.

    hashes: `member_hashes` of the members of all clusters. counts: members per cluster.
    """
    chosen = f" {sorted(spec.survivors)}" if spec.survivors else ""
    settings = value_hashes(pa.array([f"{spec.identity} {spec.strategy}{chosen}"], TEXT))
    if not len(counts):
        return np.zeros(0, np.int64)
    total = np.add.reduceat(hashes, np.cumsum(counts) - counts)
    return mix(total + settings[0]).view(np.int64)  # signed, for other engines
