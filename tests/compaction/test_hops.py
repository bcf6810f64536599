"""How far it is from the command to the loop that merges keys."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from compactor.cli.main import run
from compactor.merge import key_phase
from compactor.merge.order.key_merge import merge_keys
from compactor.stores.local import LocalStore
from tests.support.tables import ingest_tables, log_rows

MAX_HOPS = 12
COMMAND = "compact_command"
PACKAGE = str(Path(inspect.getfile(key_phase)).parents[1])


def test_compact_reaches_the_merge_loop_in_twelve_hops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest_tables(LocalStore(tmp_path / "t"), [log_rows(20, seed) for seed in range(3)], tmp_path)
    ways: list[list[str]] = []

    def traced(*arguments: Any) -> Any:
        frames = [frame.function for frame in inspect.stack() if frame.filename.startswith(PACKAGE)]
        ways.append(frames[: frames.index(COMMAND) + 1])
        return merge_keys(*arguments)

    monkeypatch.setattr(key_phase, "merge_keys", traced)
    command = ["compact", str(tmp_path / "t"), "--strategy", "full", "--master", "in-process"]
    assert run(command) == 0
    assert ways
    for way in ways:
        assert len(way) <= MAX_HOPS, " > ".join(reversed(way))
