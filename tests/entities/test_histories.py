"""Random histories of all settings, against a model in plain Python; many: `tests/entities/__main__.py`."""

from __future__ import annotations

import pytest

from tests.entities.histories import check, in_tasks


@pytest.mark.parametrize("seed", range(8))
def test_a_random_history_leaves_the_table_that_the_model_says(seed: int) -> None:
    check(seed)


def test_histories_look_often_only_at_what_changes_touch() -> None:
    assert sum(map(check, range(100, 112))) >= 3


@pytest.mark.parametrize("seed", [4, 9])
def test_tasks_leave_the_table_that_the_model_says(seed: int) -> None:
    """On the stand-in for Spark."""
    check(seed, in_tasks(), partly=False)
