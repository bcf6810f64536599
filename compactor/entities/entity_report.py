"""The report of an entity merge, real or dry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from compactor.common.counts import counted
from compactor.common.plain_values import plain_dict
from compactor.entities.cluster_figures import ClusterFigures, lines_of_clusters
from compactor.entities.cutting import CutFigures
from compactor.entities.preview import Change, lines_of_changes
from compactor.entities.rule_figures import RuleFigures, lines_of_rules, warnings_of


class EntityMergeReport(Struct, kw_only=True):
    """The figures of one run."""

    version: int = 0
    """The table's version after the run; 0 without a table."""
    entities_read: int = 0
    clusters: int = 0
    """Merged entities, changed or not."""
    new: int = 0
    changed: int = 0
    replaced: int = 0
    """Ids that no longer name an entity."""
    unchanged: int = 0
    living_before: int = 0
    """Living entities of the table before the run."""
    ended: int = 0
    """How many of them were replaced or deleted."""
    next_updated: int = 0
    """`_updated` of the next entity to be written."""
    missing_datasets: tuple[str, ...] = ()
    """Datasets that do not exist and count as empty."""
    rules: list[RuleFigures] = field(default_factory=list)
    """Figures of each rule, in the order of the spec."""
    sizes: dict[int, int] = field(default_factory=dict)
    """Number of living clusters by their number of entities."""
    largest: list[ClusterFigures] = field(default_factory=list)
    """The largest clusters of several entities."""
    cuts: CutFigures = field(default_factory=CutFigures)
    """What pairs of `never` have cut."""
    pair_warnings: tuple[str, ...] = ()
    """Lines about pairs that name no entity."""
    changes: list[Change] = field(default_factory=list)
    """The largest changes that a dry run in one process would write."""
    looked_at: int | None = None
    """Number of entities that changes touch, if the run looked at no others: the figures of rules, cuts and
    largest clusters are of these. None if it looked at all."""
    notes: tuple[str, ...] = ()
    """Lines about how the run went."""
    waiting_for: tuple[str, ...] = ()
    """Initial datasets that have to exist and do not; if any, the run did nothing."""

    @property
    def warnings(self) -> list[str]:
        """Lines about rules that match nothing, pairs that name no entity, and how the run went."""
        if self.looked_at is not None:
            return [*self.notes]  # such a run has proved that each rule matches something
        return [*self.notes, *warnings_of(self.rules), *self.pair_warnings]

    @property
    def merged(self) -> int:
        """Number of entities that are one with others."""
        return sum(size * clusters for size, clusters in self.sizes.items() if size > 1)

    @property
    def summary(self) -> str:
        return (
            f"{counted(self.entities_read, 'entity', 'entities')} read, {self.clusters:,} after merging; "
            f"{self.new:,} new, {self.changed:,} changed and {self.replaced:,} replaced"
        )

    def lines(self) -> Iterator[str]:
        """Yields lines about rules, pairs, clusters and changes."""
        if self.looked_at is not None:
            yield (
                f"looked at {counted(self.looked_at, 'entity', 'entities')} that changes touch; rules and "
                "largest clusters are of these"
            )
            if not self.looked_at:
                return
        yield from lines_of_rules(self.rules)
        yield from self.cuts.lines()
        yield from lines_of_clusters(self.sizes, self.largest)
        yield from lines_of_changes(self.changes)

    def to_json(self) -> dict[str, Any]:
        return plain_dict(self) | {"merged": self.merged, "warnings": self.warnings}
