"""The script that shows spark-submit on a local S3 server does what it says, end to end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.manifests import ROOT

pytestmark = pytest.mark.spark


def test_files_are_ingested_compacted_by_spark_submit_and_verified(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        [str(ROOT / "deploy/spark-submit/try.sh"), "--master", "local[1]"],
        env=environment | {"PYTHON": sys.executable, "TMPDIR": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "compacted by spark-submit: 4 fragments into 1, 10,000 rows, 4 GETs" in done.stdout
    assert "ok: 1 fragments, 10,000 rows" in done.stdout
    assert list(tmp_path.iterdir()) == [], "something was left behind"
