"""The tasks that connect entities of a merge on Spark, beside union-find."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
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
    homes: list[int], edges: list[Edges], max_merged: int = 100
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
    for each in connecting.connect(context, homes, batches):
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
)
def test_one_task_finds_the_components_of_edges_in_however_many_batches(
    homes: list[int], picks: list[Edges]
) -> None:
    """Homes may be empty."""
    nodes = [(home << PLACE_BITS) + n for home, count in enumerate(homes) for n in range(count)]
    edges = [[(nodes[a % len(nodes)], nodes[b % len(nodes)]) for a, b in some] for some in picks]
    labels, largest = connected(homes, edges)
    expected = components_of([edge for some in edges for edge in some])
    sizes = np.unique(list(expected.values()), return_counts=True)[1]
    several = {n for n, least in expected.items() if list(expected.values()).count(least) > 1}
    assert labels == {node: expected[node] for node in several}
    assert largest == max(sizes)


def test_of_components_that_are_too_large_only_the_largest_come_out() -> None:
    edges = [[(0, 1), (1, 2), (3, 4), (5, 6), (6, 7)]]
    labels, largest = connected([9], edges, max_merged=2)
    assert (labels, largest) == ({0: 0, 1: 0, 2: 0, 5: 5, 6: 5, 7: 5}, 3)
    labels, largest = connected([9], edges, max_merged=3)
    assert (len(labels), largest) == (8, 3)


def test_what_fits_one_task_fits_with_more_memory_and_with_fewer_entities() -> None:
    limits = [0, 1 << 20, 1 << 30, 1 << 40]
    assert [connecting.fits_one_task(1_000, limit) for limit in limits] == [False, True, True, True]
    assert [connecting.fits_one_task(10**9, limit) for limit in limits] == [
        False,
        False,
        False,
        True,
    ]


def test_ten_million_entities_fit_one_task_of_the_default_memory() -> None:
    assert connecting.fits_one_task(10_000_000, 1 << 30)
    assert not connecting.fits_one_task(30_000_000, 1 << 30)


def test_the_task_takes_no_more_memory_than_is_counted_for_its_entities() -> None:
    """In pairs, so that every entity is sent; the edges come in batches."""
    entities, batch = 2_000_000, 100_000
    context = Context(
        spec=spec("A a"), names=("A",), staging="", run_id="r", memory_limit_bytes=1 << 30
    )

    def batches() -> Iterator[tuple[int, pa.RecordBatch]]:
        for start in range(0, entities, batch):
            left = np.arange(start, start + batch, 2)
            yield 0, pa.RecordBatch.from_pydict({"left": left, "right": left + 1})

    sent = 0
    tracemalloc.start()
    try:
        for each in connecting.connect(context, [entities], batches()):
            sent += each.batch.num_rows if isinstance(each, TaskRows) else 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sent == entities
    least = next(size for size in range(1 << 40) if connecting.fits_one_task(entities, size << 16))
    assert entities * 24 < peak < least << 16
