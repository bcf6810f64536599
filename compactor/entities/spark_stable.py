"""Gives clusters the ids that their members have in the table, on Spark."""

from __future__ import annotations

from compactor.entities.tasks import matching, naming
from compactor.entities.tasks.context import LABEL, Context
from compactor.spark.shuffle.exchange import ByKeys
from compactor.spark.shuffle.jobs import Done, Jobs

_BY_LABEL = ByKeys((LABEL,))


def with_known_ids(jobs: Jobs, context: Context, clusters: Done) -> Done:
    """Returns the clusters with ids of rows, where they claim any. clusters: the job of `clustering.cluster`.

    Releases what it has replaced.
    """
    if not clusters.feeds[matching.CLAIMS].rows:
        return clusters
    rows = jobs.run(
        [clusters.flow(0, ByKeys((naming.ROW,)), matching.CLAIMS)],
        jobs.parts(clusters.feeds[matching.CLAIMS].bytes),
        lambda _part, given: naming.settle_rows(context, given),
    )
    settled = [rows.flow(naming.GIVEN, _BY_LABEL, naming.SETTLED)]
    contested: Done | None = None
    if rows.feeds[naming.CONTESTED].rows:
        contested = jobs.run(
            [rows.flow(0, _BY_LABEL, naming.CONTESTED)],
            1,
            lambda _part, given: naming.settle_contested(context, given),
        )
        settled.append(contested.flow(naming.GIVEN, _BY_LABEL))
    named = jobs.run(
        [clusters.flow(naming.CLUSTERS, _BY_LABEL, matching.LINES), *settled],
        jobs.parts(clusters.bytes),
        lambda _part, given: naming.name(context, given),
    )
    for done in (clusters, rows, contested):
        if done is not None:
            done.release()
    return named
