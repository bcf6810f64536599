"""Scratch folders: removed by their process, or by the next."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from compactor.resources.scratch import remove_stale

CODE = """
import tempfile, sys
tempfile.tempdir = sys.argv[1]
from compactor.resources.scratch import ScratchFolder
folder = ScratchFolder("scratch-")
print(folder.path, flush=True)
input()
folder.close()
"""


def starter(folder: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    scratch = Path(process.stdout.readline().strip())
    (scratch / "blockmgr-1").mkdir()
    (scratch / "blockmgr-1" / "block").write_bytes(b"x")
    return process, scratch


def test_a_folder_goes_with_its_process_and_one_of_a_killed_process_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ends, scratch = starter(tmp_path)
    killed, left = starter(tmp_path)
    remove_stale("scratch-")
    assert (scratch.exists(), left.exists()) == (True, True), "both are in use"
    ends.communicate("\n")
    assert not scratch.exists()
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert left.exists()
    remove_stale("scratch-")
    assert list(tmp_path.iterdir()) == []
