"""The script that shows spark-submit on a local S3 server does what it says, end to end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.manifests import ROOT

FOLDER = ROOT / "deploy/spark-submit"


@pytest.mark.spark
def test_files_are_ingested_compacted_by_spark_submit_and_verified(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        [str(ROOT / "deploy/spark-submit/try.sh"), "--master", "local[1]"],
        env=environment | {"PYTHON": sys.executable, "TMPDIR": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "compacted by spark-submit: 4 fragments into 1, 10,000 rows, 4 GETs" in done.stdout
    assert "ok: 1 fragment, 10,000 rows" in done.stdout
    assert list(tmp_path.iterdir()) == [], "something was left behind"


def refused(script: str, *arguments: str, **environment: str) -> str:
    """What it says, in one line, before it has begun."""
    done = subprocess.run(
        [str(FOLDER / script), *arguments], env={**os.environ, "PYTHON": sys.executable, **environment},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{script}: error: ")
    assert done.stdout == ""
    return line


@pytest.mark.parametrize(
    ("script", "arguments"), [("try.sh", []), ("submit.sh", ["--", "compact", "x"])]
)
def test_what_is_missing_is_said_in_one_line_with_what_to_do(
    script: str, arguments: list[str], tmp_path: Path
) -> None:
    line = refused(script, *arguments, PYTHON=str(tmp_path / "python"))
    assert f"no Python at {tmp_path}/python" in line and "make setup" in line
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "$@"\n')
    bare.chmod(0o755)
    assert "has no compactor pyspark pyarrow" in refused(script, *arguments, PYTHON=str(bare))
    line = refused(script, *arguments, JAVA_HOME=str(tmp_path))
    assert f"no Java at JAVA_HOME, {tmp_path}/bin/java" in line and "17 or newer" in line
    (tmp_path / "bin").mkdir()
    old = tmp_path / "bin/java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    old.chmod(0o755)
    assert "is Java 8: Spark needs 17 or newer" in refused(
        script, *arguments, JAVA_HOME=str(tmp_path)
    )


@pytest.mark.parametrize("arguments", [[], ["compact", "x"], ["--master", "local[1]", "--"]])
def test_a_command_without_arguments_of_ours_is_told_the_usage(arguments: list[str]) -> None:
    assert "usage: submit.sh" in refused("submit.sh", *arguments)


def test_the_try_takes_options_only() -> None:
    assert "compact is no option of spark-submit" in refused("try.sh", "compact", "x")
