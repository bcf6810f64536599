"""Builds clusters from components, and assigns their ids."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa

from compactor.entities.cluster_figures import sizes_of
from compactor.entities.clusters import clusters_of, member_hashes
from compactor.entities.entities import DELETED, SIGNATURE, SINCE
from compactor.entities.expressions import ID
from compactor.entities.same_ids import SameIdError
from compactor.entities.stable import lineage_of
from compactor.entities.tasks.context import LABEL, NODE, Context
from compactor.entities.tasks.lines import EntityLines, all_rows, ints_of
from compactor.entities.tasks.matching import CLAIMS
from compactor.entities.tasks.naming import strongest, wanted_ids, with_ids
from compactor.spark.shuffle.task import TaskInput, TaskOutput, TaskRows, TaskSummary
from lsm_fragment import compute as pc
from lsm_fragment.arrays.nested import build_list


def cluster(context: Context, given: TaskInput) -> TaskOutput:
    """Builds the clusters of complete components. Sends them to parts by id, and what they claim to parts by
    row."""
    charge, lined, claims = context.memory(), [], []
    for rank, batch in given:
        if rank == CLAIMS:
            charge(batch.nbytes)
            claims.append(batch)
        else:
            lined.append((rank, batch))
    lines = all_rows(context, lined)
    lines = lines.take(pc.sort_indices(lines, [("dataset", "ascending"), (ID, "ascending")]))
    numbers = ints_of(lines, "dataset")
    bounds = np.searchsorted(numbers, np.arange(len(context.names) + 1))
    datasets = [EntityLines.of(lines.slice(start, end - start)) for start, end in pairwise(bounds)]
    _, firsts, of = np.unique(ints_of(lines, LABEL), return_index=True, return_inverse=True)
    try:
        labels = firsts[of].astype(np.int64)
        clusters = clusters_of(context.spec, datasets, labels, member_hashes(datasets))
    except SameIdError as error:
        yield TaskSummary(error.to_json(), has_failed=True)
        return
    nodes = ints_of(lines, NODE)[clusters.members]
    starts = np.cumsum(clusters.counts) - clusters.counts
    counts = clusters.counts
    found = pa.RecordBatch.from_pydict(
        {
            ID: clusters.ids,
            SIGNATURE: pa.array(clusters.signatures),
            DELETED: clusters.deleted,
            "dataset": pa.array(numbers[clusters.members[starts]].astype(np.int32)),
            LABEL: pa.array(ints_of(lines, LABEL)[clusters.members[starts]]),
            NODE: build_list(pa.large_list(pa.int64()), counts, pa.array(nodes), None),
        }
    )
    if context.numbers:
        since = ints_of(lines, SINCE)
        ages = pa.array(since[clusters.members])
        found = found.append_column(
            SINCE, build_list(pa.large_list(pa.int64()), counts, ages, None)
        )
        lineage = lineage_of(datasets, context.numbers, since=since)
        wanted = wanted_ids(lineage, clusters.members, counts)
        found = with_ids(found, wanted, pa.repeat(True, len(counts)))
    yield TaskRows(found)
    if claims:
        yield TaskRows(strongest(claims), CLAIMS)
    yield TaskSummary({"sizes": list(sizes_of(clusters.counts, clusters.deleted).items())})
