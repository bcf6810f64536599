"""The tasks that connect entities of a merge on Spark, beside union-find."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.entities.components import stars
from compactor.entities.tasks import connecting
from compactor.entities.tasks.context import LABEL, NODE, Context
from compactor.spark.shuffle.task import PLACE_BITS, TaskRows, TaskSummary
from tests.entities.support import spec

Edges = list[tuple[int, int]]
SMALL = st.integers(0, 12)
EDGES = st.lists(st.tuples(SMALL, SMALL), min_size=1, max_size=30)


def components_of(edges: Edges) -> dict[int, int]:
    """The smallest node of each node's component."""
    found: dict[int, set[int]] = {}
    for one, other in edges:
        together = found.get(one, {one}) | found.get(other, {other})
        for node in together:
            found[node] = together
    return {node: min(together) for node, together in found.items()}


def ends(edges: Edges) -> tuple[np.ndarray, np.ndarray]:
    left, right = np.array(edges, np.int64).T
    return left, right


def connected(
    homes: list[int], edges: list[Edges], limit_bytes: int, max_merged: int = 100
) -> tuple[dict[int, int], int]:
    """Label of each node, and the size of the largest component. edges: of each batch."""
    context = Context(
        spec=spec("A a", max_merged=max_merged),
        names=("A",),
        staging="",
        run_id="r",
        memory_limit_bytes=1 << 30,
    )
    batches = [
        (0, pa.RecordBatch.from_pydict(dict(zip(("left", "right"), ends(some), strict=True))))
        for some in edges
    ]
    labels: dict[int, int] = {}
    for each in connecting.connect(context, homes, batches, limit_bytes):
        if isinstance(each, TaskRows):
            nodes, found = (each.batch.column(name).to_pylist() for name in (NODE, LABEL))
            assert not labels.keys() & set(nodes)
            labels.update(zip(nodes, found, strict=True))
        else:
            assert isinstance(each, TaskSummary)
            largest = each.values["largest"]
    return labels, largest


@given(edges=EDGES)
def test_stars_connect_what_the_edges_connect_with_no_edge_too_many(edges: Edges) -> None:
    left, right = stars(*ends(edges))
    star = list(zip(left.tolist(), right.tolist(), strict=True))
    expected = {node: least for node, least in components_of(edges).items() if node != least}
    assert {node: least for least, node in star} == expected
    assert len(star) == len(expected)


@given(
    homes=st.lists(st.integers(0, 4), min_size=1, max_size=5).filter(any),
    picks=st.lists(
        st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=9),
        min_size=1,
        max_size=5,
    ),
    limit_bytes=st.sampled_from([0, 1500, 1 << 30]),
)
def test_one_task_finds_the_components_in_however_many_passes(
    homes: list[int], picks: list[Edges], limit_bytes: int
) -> None:
    """Homes may be empty; at the smallest limit each batch is a pass of its own."""
    nodes = [(home << PLACE_BITS) + n for home, count in enumerate(homes) for n in range(count)]
    edges = [[(nodes[a % len(nodes)], nodes[b % len(nodes)]) for a, b in some] for some in picks]
    labels, largest = connected(homes, edges, limit_bytes)
    expected = components_of([edge for some in edges for edge in some])
    sizes = np.unique(list(expected.values()), return_counts=True)[1]
    several = {n for n, least in expected.items() if list(expected.values()).count(least) > 1}
    assert labels == {node: expected[node] for node in several}
    assert largest == max(sizes)


def test_of_components_that_are_too_large_only_the_largest_come_out() -> None:
    edges = [[(0, 1), (1, 2), (3, 4), (5, 6), (6, 7)]]
    labels, largest = connected([9], edges, 1 << 30, max_merged=2)
    assert (labels, largest) == ({0: 0, 1: 0, 2: 0, 5: 5, 6: 5, 7: 5}, 3)
    labels, largest = connected([9], edges, 1 << 30, max_merged=3)
    assert (len(labels), largest) == (8, 3)


@pytest.mark.parametrize("entities", [1, 9, 1_000, 10_000_000])
def test_what_fits_one_task_fits_with_more_memory_and_not_with_more_edges(entities: int) -> None:
    limits = [0, entities * 39, *(entities * factor for factor in range(40, 400, 7)), 1 << 40]
    for edges in (1, entities, 3 * entities):
        fits = [connecting.fits_one_task(entities, edges, limit) for limit in limits]
        assert fits == sorted(fits)
        assert (fits[0], fits[1], fits[-1]) == (False, False, True)
        assert all(
            not fit or connecting.fits_one_task(entities, max(1, edges // 2), limit)
            for fit, limit in zip(fits, limits, strict=True)
        )


def test_ten_million_entities_fit_one_task_of_the_default_memory() -> None:
    assert connecting.fits_one_task(10_000_000, 20_000_000, 1 << 30)
    assert not connecting.fits_one_task(30_000_000, 20_000_000, 1 << 30)
