"""The figures of clusters in a run's report: how many of each size, and the largest with their commonest
values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from compactor.common.counts import counted
from compactor.entities.entities import Entities
from compactor.entities.expressions import first_steps
from compactor.entities.matching import Aside, groups_of_rule, part_of, values_of_rules
from compactor.entities.properties import Properties, stored
from compactor.entities.rule_figures import cut, rule_text
from compactor.entities.spec import EntityMergeSpec
from compactor.entities.texts import I64, TEXT
from compactor.rows.bounded_keys import keys_of
from lsm_fragment import compute as pc

LARGEST: Final = 5
"""Report this many of the largest clusters."""
COMMONEST: Final = 3
"""Report this many values of each."""
_SHOWN_SIZES: Final = 12
_VALUES: Final = pa.schema(
    [
        ("rule", pa.int32()),
        ("text", TEXT),
        ("on_left", pa.bool_()),
        ("on_right", pa.bool_()),
        ("entities", pa.int64()),
    ]
)


class CommonValue(Struct):
    """A value that ties entities of a cluster."""

    rule: str
    value: str
    """JSON text, cut."""
    entities: int

    def __str__(self) -> str:
        return f"{self.value} by {self.rule} ({counted(self.entities, 'entity', 'entities')})"


class ClusterFigures(Struct):
    """One of the largest clusters."""

    key: str
    """As in the table's column `$key`."""
    entities: int
    values: list[CommonValue]
    """Its commonest values."""


def sizes_of(counts: I64, deleted: pa.Array) -> dict[int, int]:
    """Returns the number of living clusters by size."""
    clusters = np.bincount(counts[~np.asarray(deleted)])
    return {int(size): int(clusters[size]) for size in np.flatnonzero(clusters)}


def largest_of(ids: pa.Array, counts: I64) -> list[tuple[int, str, int]]:
    """Returns entity count, key and number of the largest clusters that have several entities."""
    if not len(counts):
        return []
    least = max(2, int(np.partition(counts, -min(LARGEST, len(counts)))[-LARGEST:][0]))
    large = np.flatnonzero(counts >= least)
    keys = keys_of(ids.take(pa.array(large)))
    table = pa.table({"entities": counts[large], "key": keys, "number": large})
    order = [("entities", "descending"), ("key", "ascending")]
    found = table.take(pc.select_k_unstable(table, min(LARGEST, len(table)), sort_keys=order))
    return [(row["entities"], row["key"], row["number"]) for row in found.to_pylist()]


def for_rules(spec: EntityMergeSpec, datasets: Sequence[Entities]) -> list[Entities]:
    """Returns the datasets with those properties only that rules read."""
    names = {n for rule in spec.rules for side in rule for n in first_steps(side.expression)}
    return [
        replace(
            d,
            properties=Properties({n: c for n, c in stored(d.properties).items() if n in names}),
        )
        for d in datasets
    ]


def values_of_cluster(
    spec: EntityMergeSpec, entities: Sequence[Entities], aside: Sequence[Aside]
) -> Iterator[pa.RecordBatch]:
    """Yields the values of each rule in a cluster, or in a part of one, with the number of entities."""
    for number, sides in enumerate(values_of_rules(spec, entities, aside=aside)):
        groups = groups_of_rule(*sides)
        columns = [
            pa.array(np.full(len(groups.texts), number, np.int32)),
            groups.texts,
            pa.array(groups.on_left),
            pa.array(groups.on_right),
            pa.array(groups.entities()),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=_VALUES)


def commonest(spec: EntityMergeSpec, values: pa.Table) -> list[CommonValue]:
    """Returns the values in common that most entities of a cluster have. values: each once."""
    is_shared = pc.and_(values["on_left"], values["on_right"])
    shared = values.filter(pc.and_(is_shared, pc.greater(values["entities"], 1)))
    order = [("entities", "descending"), ("rule", "ascending"), ("text", "ascending")]
    top = shared.take(pc.select_k_unstable(shared, min(COMMONEST, len(shared)), sort_keys=order))
    return [
        CommonValue(rule_text(spec.rules[row["rule"]]), cut(row["text"]), row["entities"])
        for row in top.to_pylist()
    ]


def commonest_in(
    spec: EntityMergeSpec, datasets: Sequence[Entities], members: I64, aside: Sequence[Aside]
) -> list[CommonValue]:
    """Returns the commonest values of a cluster. members: ascending entity numbers."""
    part = part_of(for_rules(spec, datasets), members)
    return commonest(spec, pa.Table.from_batches(values_of_cluster(spec, part, aside), _VALUES))


def united(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Adds up the values that several parts of a cluster have."""
    table = pa.Table.from_batches(batches, _VALUES)
    ways = [("on_left", "any"), ("on_right", "any"), ("entities", "sum")]
    found = table.group_by(["rule", "text"]).aggregate(ways)
    return found.select(["rule", "text", *(f"{name}_{way}" for name, way in ways)]).rename_columns(
        _VALUES.names
    )


def lines_of_clusters(sizes: Mapping[int, int], largest: Sequence[ClusterFigures]) -> Iterator[str]:
    """Yields lines about the sizes of clusters, and one about each of the largest."""
    if not largest:
        return
    shown = sorted(sizes.items())
    some = [f"{clusters:,} of {size:,}" for size, clusters in shown[:_SHOWN_SIZES]]
    if len(shown) > _SHOWN_SIZES:
        rest = sum(clusters for _, clusters in shown[_SHOWN_SIZES:])
        some.append(f"{rest:,} of more")
    yield f"clusters by number of entities: {', '.join(some)}"
    for each in largest:
        values = f": {', '.join(map(str, each.values))}" if each.values else ""
        yield f"{each.key} has {counted(each.entities, 'entity', 'entities')}{values}"
