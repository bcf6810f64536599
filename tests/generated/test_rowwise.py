"""Some random graphs that handle each row by itself; `make test-long` runs thousands."""

from __future__ import annotations

import pytest

from tests.generated.pool import run
from tests.generated.rowwise.check import TIMEOUT_S, check


def test_a_graph_gives_the_rows_and_dead_letters_that_python_gives() -> None:
    findings = [(seed, fault) for seed in range(150) if (fault := check(seed))]
    assert not findings


@pytest.mark.long
@pytest.mark.timeout(600)
def test_more_graphs_give_the_rows_and_dead_letters_that_python_gives() -> None:
    assert not run(check, range(10_000, 10_600), processes=2, timeout_s=TIMEOUT_S)
