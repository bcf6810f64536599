"""Some hundred tables with sums near what their types hold; `make test-long` runs thousands."""

from __future__ import annotations

import pytest

from tests.generated.pool import run
from tests.generated.sums import TIMEOUT_S, check


def test_a_sum_is_right_or_refused_by_its_key_everywhere() -> None:
    findings = [(seed, fault) for seed in range(40) if (fault := check(seed))]
    assert not findings


@pytest.mark.long
@pytest.mark.timeout(600)
def test_more_sums_are_right_or_refused_by_their_keys() -> None:
    assert not run(check, range(1_000, 1_150), processes=2, timeout_s=TIMEOUT_S)
