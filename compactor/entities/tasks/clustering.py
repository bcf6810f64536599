"""Builds clusters from components, and assigns their ids."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa

from compactor.entities.cluster_figures import sizes_of
from compactor.entities.clusters import clusters_of, member_hashes
from compactor.entities.entities import DELETED, SIGNATURE
from compactor.entities.expressions import ID
from compactor.entities.same_ids import SameIdError
from compactor.entities.tasks.context import LABEL, NODE, Context
from compactor.entities.tasks.lines import EntityLines, all_rows, ints_of
from compactor.spark.shuffle.task import TaskInput, TaskOutput, TaskRows, TaskSummary
from lsm_fragment import compute as pc
from lsm_fragment.arrays.nested import build_list


def cluster(context: Context, given: TaskInput) -> TaskOutput:
    """Builds the clusters of complete components. Sends them to parts by id."""
    lines = all_rows(context, given)
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
    yield TaskRows(
        pa.RecordBatch.from_pydict(
            {
                ID: clusters.ids,
                SIGNATURE: pa.array(clusters.signatures),
                DELETED: clusters.deleted,
                "dataset": pa.array(numbers[clusters.members[starts]].astype(np.int32)),
                LABEL: pa.array(ints_of(lines, LABEL)[clusters.members[starts]]),
                NODE: build_list(pa.large_list(pa.int64()), clusters.counts, pa.array(nodes), None),
            }
        )
    )
    yield TaskSummary({"sizes": list(sizes_of(clusters.counts, clusters.deleted).items())})
