"""Commands end as they should where the system refuses them threads or memory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.generated import pool, shortages
from tests.support.thread_limit import COMPILER

SEEDS = range(len(shortages.COMMANDS))

pytestmark = pytest.mark.skipif(
    shutil.which(COMPILER) is None or not Path("/proc").is_dir(),
    reason="needs Linux and a C compiler",
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        shutil.copytree(shortages.template(), name, dirs_exist_ok=True)
        yield Path(name)


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_commands_do_with_the_threads_and_the_memory_there_are() -> None:
    findings = pool.run(shortages.check, SEEDS, processes=2, timeout_s=180)
    assert not findings, "\n".join(f"seed {f.seed}: {f.text}" for f in findings)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("threads", (0, 1, 3))
def test_every_kind_of_file_is_read_and_written_in_the_threads_there_are(
    threads: int, folder: Path
) -> None:
    names = ("rows.csv", "rows.ndjson", "rows.parquet", "rows.arrow")
    done = shortages.limited(folder, ["ingest", "t", *names], threads=threads)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"({len(names)} files): 24,000 rows in 1 fragment" in done.stdout
    done = shortages.limited(folder, ["run", "one.yaml"], threads=threads)
    assert (done.returncode, (folder / "bad.ndjson").read_text()) == (0, "")
