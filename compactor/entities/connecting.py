"""Connects entities to clusters: by rules and by `always`, and apart as `never` says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from compactor.entities.components import Components
from compactor.entities.cutting import CutFigures, kept_apart
from compactor.entities.entities import Entities
from compactor.entities.matching import Aside, OnValues, edges, starts_of, unnoticed
from compactor.entities.memory import Charge, unlimited
from compactor.entities.pairs import Pairs, names_in, read_pairs, resolved
from compactor.entities.rule_figures import RuleFigures
from compactor.entities.spec import EntityMergeSpec, OnNever
from compactor.entities.texts import I64


class Connected(Struct, frozen=True):
    """Clusters before they are named."""

    labels: I64
    """Per entity, the first of its cluster."""
    rules: list[RuleFigures]
    pairs: Pairs
    cuts: CutFigures
    aside: Sequence[Aside]
    """Values of each rule that link nothing."""


def connected(
    spec: EntityMergeSpec,
    datasets: Sequence[Entities],
    connect: Components,
    charge: Charge = unlimited,
    on_values: OnValues = unnoticed,
    *,
    explains: bool = False,
) -> Connected:
    """Finds the cluster of each entity.

    explains: does not refuse what ties a pair of `never`. Raises the errors of `kept_apart` and `resolved`.
    """
    texts = read_pairs(spec)
    pairs = resolved(texts, names_in(spec, datasets, texts.texts))
    (left, right), rules, aside = edges(spec, datasets, charge, on_values)
    if pairs.always:
        one, other = np.array(pairs.always, np.int64).T
        left, right = np.concatenate([left, one]), np.concatenate([right, other])
    labels, cuts = connect(int(starts_of(datasets)[-1]), left, right), CutFigures()
    if not (explains and spec.on_never is OnNever.REFUSE):
        labels, cuts = kept_apart(spec, datasets, labels, pairs, aside)
    return Connected(labels, rules, pairs, cuts, aside)
