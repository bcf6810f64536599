"""Some of many."""

from __future__ import annotations

import pytest

from compactor.common.sampling import evenly


@pytest.mark.parametrize(
    ("most", "taken"), [(0, []), (1, [0]), (2, [0, 9]), (4, [0, 3, 6, 9]), (99, list(range(10)))]
)
def test_few_of_many_are_spread_evenly(most: int, taken: list[int]) -> None:
    assert evenly(range(10), most) == taken
