"""A crash loop: real processes on one table die by SIGKILL, at named points and at random moments.

After every death the table is read and verified by a fresh process's eyes: all rows of ingests that were
acknowledged are there once, an ingest or a deletion that died is there as a whole or not at all, nothing
else is.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from compactor.read.scan import scan
from compactor.read.verify import verify
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from tests.crash.points import POINTS, Point
from tests.support.tables import log_rows

ROOT = Path(__file__).parents[2]
_ROWS = 120

COMPACT = [
    ["compact", "--strategy", "overlapping", "--target-fragment-bytes", "4000"],
    ["compact", "--strategy", "leveled", "--level0-trigger-runs", "2",
     "--level1-target-bytes", "20000", "--target-fragment-bytes", "4000"],
    ["compact", "--strategy", "full"],
]  # fmt: skip
VACUUM = [["vacuum", "--grace", "0", "--retain", "0"], ["vacuum", "--retain", "0"]]


class LostRowsError(AssertionError):
    """The table does not hold what it must."""


class CrashLoop:
    """One table; `round` runs one command, kills it perhaps, and looks at the table."""

    def __init__(self, url: str, seed: int, say: Callable[[str], None] = lambda _: None) -> None:
        self._url = url
        self._random = random.Random(seed)
        self._say = say
        self._folder = Path(tempfile.mkdtemp(prefix="crash-loop-"))
        self._ingests = 0
        self._sure: Counter[str] = Counter()
        self._open: dict[int, set[str]] = {}
        """Ingests that died, by number: all of their rows are there, or none."""
        self._deleting: set[str] = set()
        """Rows of a deletion that died: all of them are there, or none."""
        self._at: dict[int, Counter[str]] = {}
        """The rows of versions that were looked at."""
        self._restoring: Counter[str] | None = None
        """The rows of a version whose restore died: they are what is there, or nothing has changed."""
        self.deaths = 0
        self.rounds = 0

    def run(self, rounds: int) -> None:
        self._ingest(None)
        for _ in range(rounds):
            self.round()

    def round(self) -> None:
        self.rounds += 1
        point = self._random.choice([None, "time", *POINTS, *POINTS])
        commands = ["ingest"] * 3 + ["compact"] * 2 + ["delete", "vacuum", "restore"]
        match self._random.choice(commands):
            case "ingest":
                self._ingest(point)
            case "compact":
                command, *options = self._random.choice(COMPACT)
                options += ["--master", "in-process", "--max-rows-per-row-group", "40"]
                self._command([command, self._url, *options], point)
            case "delete":
                self._delete(point)
            case "restore":
                self._restore(point)
            case "vacuum":
                command, *options = self._random.choice(VACUUM)
                self._command([command, self._url, *options], point)
        self.check()

    def check(self) -> None:
        """Raises `LostRowsError`."""
        store = open_store(self._url)
        snapshot = CommitLog(store).current()
        faults = verify(store, snapshot).faults
        if faults:
            raise LostRowsError(f"round {self.rounds}: {faults}")
        found = Counter(v for b in scan(store, snapshot, ["id"]) for v in b.column(0).to_pylist())
        for number, ids in list(self._open.items()):
            there = sum(found[row_id] for row_id in ids)
            if there not in (0, len(ids)):
                raise LostRowsError(
                    f"round {self.rounds}: {there} rows of {len(ids)} of ingest {number}"
                )
            if there:
                self._sure.update(ids)
            # What died before its commit does not come later.
            del self._open[number]
        there = sum(found[row_id] for row_id in self._deleting)
        if there not in (0, len(self._deleting)):
            raise LostRowsError(
                f"round {self.rounds}: {there} rows are left of {len(self._deleting)} to be deleted"
            )
        if not there:
            self._sure -= Counter(self._deleting)
        self._deleting = set()
        if found == self._restoring:
            self._sure = found
        self._restoring = None
        self._at[snapshot.version] = Counter(self._sure)
        if found != self._sure:
            lost, extra = self._sure - found, found - self._sure
            raise LostRowsError(
                f"round {self.rounds}: {lost.total()} rows lost, {extra.total()} too many at version "
                f"{snapshot.version}"
            )

    def _ingest(self, point: Point | str | None) -> None:
        self._ingests += 1
        number = self._ingests
        table = log_rows(_ROWS, 1000 + number)
        path = self._folder / f"{number}.parquet"
        pq.write_table(table, path)
        ids = set(table["id"].to_pylist())
        self._open[number] = ids
        done = self._command(
            ["ingest", self._url, str(path), "--sort-by", "service,ts:desc", "--rows-per-fragment", "50",
             "--max-rows-per-row-group", "30"],
            point,
        )  # fmt: skip
        path.unlink()
        if done:
            del self._open[number]
            self._sure.update(ids)

    def _delete(self, point: Point | str | None) -> None:
        """Rows of some ingests by the end of their number."""
        digits = self._random.choice(["1", "23", "4", "57"])
        self._deleting = {row_id for row_id in self._sure if row_id.endswith(digits)}
        if self._command(["delete", self._url, "--where", f"id LIKE '%{digits}'"], point):
            self._sure -= Counter(self._deleting)
            self._deleting = set()

    def _restore(self, point: Point | str | None) -> None:
        """Some version that was looked at and is kept."""
        newest = CommitLog(open_store(self._url)).current()
        version = self._random.choice([v for v in self._at if newest.keeps(v)] or [newest.version])
        self._restoring = self._at.get(version, self._sure)
        if self._command(["restore", self._url, "--version", str(version)], point):
            self._sure = Counter(self._restoring)

    def _command(self, arguments: list[str], point: Point | str | None) -> bool:
        """Whether it came to its end. Raises `LostRowsError` if it failed of itself."""
        environment = dict(os.environ)
        if isinstance(point, Point):
            environment["CRASH_AT"] = str(point)
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.child", *arguments],
            cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        if point == "time":
            time.sleep(self._random.uniform(0.4, 1.2))
            process.kill()
        output, _ = process.communicate(timeout=120)
        died = process.returncode == -signal.SIGKILL
        self._say(f"{self.rounds}: {arguments[0]} at {point}: {'killed' if died else 'ended'}")
        self.deaths += died
        if not died and process.returncode != 0:
            raise LostRowsError(f"{arguments} failed ({process.returncode}): {output}")
        return not died
