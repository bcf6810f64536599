"""The commands that the operations page gives for a fragment that is gone do what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from compactor import Table

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "operations.md"
SECTION = re.compile(r"^## When a fragment is damaged or gone\n(.*?)^## ", re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """The commands on the local table, which are in the last block."""
    (section,) = SECTION.findall(PAGE.read_text())
    block: str = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)[-1]
    return block.splitlines()


@pytest.mark.timeout(300)
def test_the_commands_for_a_lost_fragment_bring_the_table_back(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "logs", pa.table({"n": range(10)}), sort_by="n")
    for _ in range(2):
        table.append(pa.table({"n": range(10)}))
    lost = table.fragments()["key"][1].as_py()
    (tmp_path / "logs" / lost).unlink()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    failed, printed = [], {}
    for command in commands():
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=os.environ | {"PATH": path, "FRAGMENT": lost},
            capture_output=True,
            text=True,
        )
        shown = command.partition(" #")[0].strip()
        printed[shown] = done.stdout + done.stderr
        if done.returncode:
            failed.append((shown, done.returncode))
    # The first look finds the fault, and a drop without consent is refused.
    refused = 'compactor drop-fragment ./logs "$FRAGMENT"'
    assert failed == [("compactor verify ./logs", 1), (refused, 2)]
    assert "10 rows" in printed[refused]
    counted = printed["compactor query ./logs --count --skip-missing"]
    assert "20" in counted.splitlines()
    assert "left out 1 fragment, gone or in quarantine, with 10 rows" in counted
    assert Table.open(tmp_path / "logs").scan().to_table()["n"].to_pylist() == [
        n for n in range(2, 10) for _ in range(2)
    ]
