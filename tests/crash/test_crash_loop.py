"""Processes killed at named points and at random moments: nothing is lost, doubled or half there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.loop import CrashLoop


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("merges", [False, True], ids=["append", "last"])
def test_a_table_survives_processes_that_die_anywhere(tmp_path: Path, *, merges: bool) -> None:
    CrashLoop(str(tmp_path / "t"), seed=1, merges=merges).run(rounds=15, deaths=4)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_table_on_s3_survives_processes_that_die_anywhere(s3_server, s3_bucket: str) -> None:
    loop = CrashLoop(f"s3://{s3_bucket}/t", seed=2)
    loop.run(rounds=6, deaths=2)
    assert loop.readings
