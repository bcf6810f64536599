"""Some random graphs of pipelines; `make test-long` runs thousands."""

from __future__ import annotations

import pytest

from tests.generated.graphs.check import TIMEOUT_S, check
from tests.generated.pool import run


def test_a_graph_gives_the_rows_that_duckdb_gives() -> None:
    findings = [(seed, fault) for seed in range(60) if (fault := check(seed))]
    assert not findings


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_more_graphs_give_the_rows_that_duckdb_gives() -> None:
    assert not run(check, range(10_000, 10_100), processes=2, timeout_s=TIMEOUT_S)
