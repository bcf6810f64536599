"""Figures of clusters on Spark: sizes, and the commonest values of the largest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from compactor.entities.cluster_figures import COMMONEST, LARGEST, ClusterFigures, CommonValue
from compactor.entities.rule_figures import rule_text
from compactor.entities.spark_labels import Labels
from compactor.entities.tasks import commonness
from compactor.entities.tasks.context import Context, Partition
from compactor.spark.shuffle.exchange import ByKeys
from compactor.spark.shuffle.jobs import Done, Flow, Jobs


def total_sizes(clusters: Done) -> dict[int, int]:
    """Returns the number of living clusters by size, from the job of `clustering.cluster`."""
    total: Counter[int] = Counter()
    for said in clusters.summaries.values():
        total.update(dict(said["sizes"]))
    return dict(sorted(total.items()))


def largest_clusters(
    jobs: Jobs,
    context: Context,
    homes: Mapping[int, Partition],
    compared: Done,
    labels: Labels | None,
) -> list[ClusterFigures]:
    """Returns the largest clusters with their commonest values. compared: the job of `differing.differ`."""
    found = sorted(
        (-entities, key, component)
        for said in compared.summaries.values()
        for entities, key, component in said["largest"]
    )[:LARGEST]
    if not found or labels is None:
        return []
    chosen = labels.of([component for *_, component in found])
    values = common_values(jobs, context, homes, chosen)
    return [
        ClusterFigures(key, -entities, values.get(component, []))
        for entities, key, component in found
    ]


def common_values(
    jobs: Jobs, context: Context, homes: Mapping[int, Partition], labels: Sequence[Flow]
) -> dict[int, list[CommonValue]]:
    """Returns the commonest values of each component. labels: of its entities, to their homes."""
    sent = jobs.run(
        labels,
        max(homes) + 1,
        lambda part, given: commonness.values_at_home(context, homes[part], given),
    )
    if not sent.rows:
        return {}
    counted = jobs.run(
        [sent.flow(0, ByKeys(("rule", "text")))],
        jobs.parts(sent.bytes),
        lambda _part, given: commonness.counted(context, given),
    )
    sent.release()
    found: dict[int, list[CommonValue]] = defaultdict(list)
    rules = {rule_text(rule): number for number, rule in enumerate(context.spec.rules)}
    for said in counted.summaries.values():
        for owner, values in said["values"]:
            found[owner] += [CommonValue(**value) for value in values]
    for values in found.values():
        values.sort(key=lambda each: (-each.entities, rules[each.rule], each.value))
        del values[COMMONEST:]
    return found
