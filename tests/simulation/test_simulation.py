"""The protocol under every interleaving and fault that some thousand seeds come up with."""

from __future__ import annotations

from collections import Counter
from multiprocessing import get_context

import pytest

from tests.simulation.hazards import HAZARDS, Hazard
from tests.simulation.mutations import MUTATIONS, Mutation
from tests.simulation.run import (
    FoundError,
    Scene,
    finding,
    simulate,
    spawn_deletes,
    spawn_deletes_of_keys,
    spawn_few,
)

_FEW_SEEDS = 100
_MANY_SEEDS = 180
_MUTATION_SEEDS = 300
_WAITING_SEEDS = 300


def test_the_same_seed_gives_the_same_run() -> None:
    for seed in (3, 4, 5):
        assert simulate(seed).trace == simulate(seed).trace
    assert simulate(3).trace != simulate(4).trace


@pytest.mark.timeout(600)  # many seeds take a minute on two cores that do other things too
@pytest.mark.parametrize(
    "seeds",
    [range(_FEW_SEEDS), pytest.param(range(_FEW_SEEDS, _MANY_SEEDS), marks=pytest.mark.long)],
    ids=["few", "many"],
)
def test_no_row_is_lost_or_doubled_whatever_happens(seeds: range) -> None:
    with get_context("spawn").Pool(2) as pool:
        for found in pool.imap_unordered(finding, seeds, chunksize=20):
            if found is not None:
                pool.terminate()
                pytest.fail(f"{found}\n" + "\n".join(found.trace[-40:]))


@pytest.mark.parametrize("scene", [spawn_deletes, spawn_deletes_of_keys])
def test_deletes_during_compactions_make_none_void(scene: Scene) -> None:
    visits: Counter[str] = Counter()
    for seed in range(4):
        visits += simulate(seed, scene).visits
    assert visits["carried"] >= 4
    assert not visits["not carried"]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_breaking_a_rule_is_found_by_the_simulation(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation.apply(monkeypatch)
    with pytest.raises(FoundError):
        for seed in range(mutation.start, mutation.start + _MUTATION_SEEDS):
            mutation.simulate(seed)


def test_the_seeds_that_find_mutations_find_nothing_without() -> None:
    for mutation in MUTATIONS:
        if mutation.start:
            mutation.simulate(mutation.start)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("hazard", [h for h in HAZARDS if h.waits_for], ids=str)
def test_a_hazard_that_waits_for_the_product_still_finds_something(hazard: Hazard) -> None:
    """If this fails, the hazard waits no more: take its `waits_for` away."""
    with pytest.raises(FoundError):
        for seed in range(_WAITING_SEEDS):
            simulate(seed, spawn_few, hazard)
