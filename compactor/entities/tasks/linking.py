"""Cuts clusters, explains them and lists their links, of entities that `gathering` has brought together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from compactor.common.plain_values import plain_dict
from compactor.entities.connecting import Connected
from compactor.entities.cutting import Cluster, CutFigures, names_of, pairs_among
from compactor.entities.explain import explain
from compactor.entities.links import LINK_ORDER, LINK_ROWS, link_rows
from compactor.entities.pairs import Pairs
from compactor.entities.spec import OnNever
from compactor.entities.tasks.context import LABEL, NODE, Context
from compactor.entities.tasks.gathering import Gathered
from compactor.entities.tasks.reading import SAMPLED_CHARACTERS
from compactor.errors import UsageError, message_of
from compactor.spark.shuffle.task import SampledKeys, TaskInput, TaskOutput, TaskRows, TaskSummary
from lsm_fragment import compute as pc
from lsm_fragment.keys.sort_schema import SortColumn

BY_FIRST: Final = tuple(SortColumn(name) for name in LINK_ORDER[:3])
"""The order of links by which tasks divide them."""


def divide(context: Context, given: TaskInput, pairs: Pairs, asked: Sequence[int]) -> TaskOutput:
    """Sends new labels for the entities of clusters that have a pair of `never`.

    pairs: by number in the run. asked: entities whose labels the summary has, too. What is refused goes into
    the summary: the first refused cluster of all tasks decides.
    """
    said = []
    for component, part, nodes in Gathered.of(context, given).clusters():
        spec, names = context.spec, names_of(context.spec, part)
        cluster = Cluster(spec, part, pairs_among(pairs, nodes), names, context.aside)
        try:
            if spec.on_never is OnNever.REFUSE:
                said.append({"component": component, "tie": cluster.tie()})
                continue
            new, figures = cluster.divided()
        except UsageError as error:
            said.append({"component": component, "refused": message_of(error).to_json()})
            continue
        labels = nodes[new]
        yield TaskRows(pa.RecordBatch.from_pydict({NODE: nodes, LABEL: labels}))
        is_asked = np.isin(nodes, np.array(asked, np.int64))
        values, counts = np.unique(labels, return_counts=True)
        said.append(
            {
                "component": component,
                "cuts": plain_dict(figures),
                "asked": np.stack([nodes[is_asked], labels[is_asked]], axis=1).tolist(),
                "sizes": [
                    each
                    for each in zip(values.tolist(), counts.tolist(), strict=True)
                    if each[1] > spec.max_merged
                ],
            }
        )
    yield TaskSummary({"clusters": said})


def explained(context: Context, given: TaskInput, pairs: Pairs, asked: Sequence[int]) -> TaskOutput:
    """Explains entities, given by number in the run. given: all entities of their clusters."""
    found = Gathered.of(context, given)
    place_of = {node: place for place, node in enumerate(found.nodes.tolist())}
    connected = Connected(
        found.labels, [], pairs_among(pairs, found.nodes), CutFigures(), context.aside
    )
    places = [place_of[node] for node in asked]
    yield TaskSummary(
        {"explained": plain_dict(explain(context.spec, found.datasets, connected, places))}
    )


def links(context: Context, given: TaskInput, pairs: Pairs) -> TaskOutput:
    """Sends the links of whole clusters."""
    found = Gathered.of(context, given)
    always = pairs_among(pairs, found.nodes).always
    for batch in link_rows(context.spec, found.datasets, found.labels, always, context.aside):
        if batch.num_rows:
            yield TaskRows(batch)
            yield SampledKeys(bounded(batch), BY_FIRST)
    yield TaskSummary({})


def bounded(links: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the columns that divide links, with the starts of ids, which divide them as well."""
    ids = pc.utf8_slice_codeunits(links.column("id"), 0, SAMPLED_CHARACTERS)
    names = LINK_ORDER[:3]
    return pa.RecordBatch.from_pydict(
        {name: ids if name == "id" else links.column(name) for name in names}
    )


def in_order(context: Context, given: TaskInput) -> TaskOutput:
    """Sorts the links of a range."""
    charge = context.memory()
    batches = []
    for _, batch in given:
        charge(batch.nbytes)
        batches.append(batch.select(LINK_ROWS.names))
    table = pa.Table.from_batches(batches, LINK_ROWS)
    for batch in table.sort_by([(name, "ascending") for name in LINK_ORDER]).to_batches():
        yield TaskRows(batch)
    yield TaskSummary({})


def chosen(components: Mapping[int, int], asked: Sequence[int]) -> dict[str, list[int]]:
    """Returns rows that label entities with their components, even those that nothing connects."""
    return {NODE: list(asked), LABEL: [components[node] for node in asked]}
