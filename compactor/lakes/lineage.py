"""Tells by the log which fragments compactions made of which. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from msgspec import Struct, field

from compactor.lakes.pieces import node_of
from compactor.table.entry import FragmentEntry
from compactor.table.snapshot import Snapshot
from compactor.table.version import Operation, Version


class Lineage(Struct, frozen=True):
    """The fragments since a version, each with its deleted rows: where they come from."""

    inputs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """What the outputs of each compaction were made of."""
    arrived: Mapping[str, FragmentEntry] = field(default_factory=dict)
    """Fragments that came otherwise."""

    def sources(self, node: str, known: frozenset[str] | set[str]) -> set[str]:
        """Returns the fragments that a fragment was made of by compactions alone.

        known: fragments whose own sources are not asked for.
        """
        found: set[str] = set()
        seen = {node}
        waiting = [node]
        while waiting:
            one = waiting.pop()
            if one in known or one not in self.inputs:
                found.add(one)
                continue
            waiting.extend(self.inputs[one] - seen)
            seen |= self.inputs[one]
        return found


def lineage_of(since: Snapshot, versions: Iterable[Version], held: Set[str]) -> Lineage:
    """Returns the lineage of all fragments after `since`. Takes the compactions of one version together.

    held: the fragments in the files of the lake. Others of `since`, whose level was left out, count as if
    they had arrived after it.
    """
    live = {entry.key: node_of(entry) for entry in since.fragments.all()}
    inputs: dict[str, frozenset[str]] = {}
    arrived = {
        node: entry for entry in since.fragments.all() if (node := node_of(entry)) not in held
    }
    for version in versions:
        changes = version.changes
        removed = frozenset(live.pop(key) for key in changes.removes)
        added = {node_of(entry): entry for entry in changes.adds}
        live.update((entry.key, node) for node, entry in added.items())
        new = {node: entry for node, entry in added.items() if node not in removed}
        if changes.operation is Operation.COMPACT:
            inputs.update(dict.fromkeys(new, removed))
        else:
            arrived |= new
    return Lineage(inputs, arrived)
