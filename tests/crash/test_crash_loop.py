"""Processes killed at named points and at random moments: nothing is lost, doubled or half there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.loop import CrashLoop


@pytest.mark.long
def test_a_table_survives_processes_that_die_anywhere(tmp_path: Path) -> None:
    loop = CrashLoop(str(tmp_path / "t"), seed=1)
    loop.run(rounds=50)
    assert loop.deaths >= 10


@pytest.mark.long
def test_a_table_on_s3_survives_processes_that_die_anywhere(s3_server, s3_bucket: str) -> None:
    loop = CrashLoop(f"s3://{s3_bucket}/t", seed=2)
    loop.run(rounds=12)
    assert loop.deaths >= 3
