"""Two watching and two ingesting processes on one table of a local S3, for minutes; nothing may be lost.

    python -m tests.soak --minutes 3 [--master 'local[2]'] [--kill] [--vacuum] [--faults]

--kill: now and then a watcher dies by SIGKILL and is started again. --vacuum: a vacuum runs every few
seconds beside them. --faults: the network drops connections, loses answers, delivers requests twice and
stalls. In the end the watchers get SIGTERM, the table is verified, and every row of every acknowledged
ingest must be there exactly once. An ingest that failed behind such a network is there as a whole or not at
all.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.planner.tree import forest, overlapping_pairs
from compactor.read.scan import scan
from compactor.read.verify import verify
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from tests.conftest import s3_environment
from tests.faults import DeliverTwice, Drop, Faults, LoseAnswer, Stall, calls
from tests.support.s3_server import S3Server

_ROOT = Path(__file__).parents[2]
_COMPACTOR = [sys.executable, "-m", "compactor.cli.main"]


class Ingester(threading.Thread):
    """Runs one `compactor ingest` process after the other until told to stop."""

    def __init__(self, url: str, number: int, folder: Path, rows: int) -> None:
        super().__init__()
        self._url, self._number, self._folder, self._rows = url, number, folder, rows
        self.stop = threading.Event()
        self.acknowledged: list[str] = []
        self.unsure: list[list[str]] = []
        """The rows of each ingest that failed."""
        self.failures: list[str] = []
        self.files = 0

    def run(self) -> None:
        while not self.stop.is_set():
            path, ids = self._file()
            done = subprocess.run(
                [*_COMPACTOR, "ingest", self._url, str(path), "--sort-by", "service,ts"],
                cwd=_ROOT, capture_output=True, text=True, check=False,
            )  # fmt: skip
            path.unlink()
            if done.returncode == 0:
                self.acknowledged += ids
                self.files += 1
            else:
                self.failures.append(done.stderr)
                self.unsure.append(ids)

    def _file(self) -> tuple[Path, list[str]]:
        rng = np.random.default_rng([self._number, self.files])
        ids = [f"{self._number}-{self.files}-{n}" for n in range(self._rows)]
        table = pa.table(
            {
                "service": [f"service-{n}" for n in rng.integers(0, 50, self._rows)],
                "ts": pa.array(rng.integers(0, 10**9, self._rows), pa.timestamp("us", "UTC")),
                "id": ids,
                "text": [f"message {n}" for n in rng.integers(0, 10**6, self._rows)],
            }
        )
        path = self._folder / f"{self._number}-{self.files}.parquet"
        pq.write_table(table, path)
        return path, ids


def start_watcher(url: str, master: str, log: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*_COMPACTOR, "watch", url, "--master", master, "--poll", "1s", "--json",
         "--level1-target-bytes", "400000", "--target-fragment-bytes", "200000"],
        cwd=_ROOT, stdout=log.open("ab"), stderr=subprocess.STDOUT,
    )  # fmt: skip


def make_unreliable(faults: Faults, random: Random) -> None:
    """Adds each fault of a network, on a few calls in a thousand."""
    writes = calls("PUT", "POST")
    faults.add(Drop(), at=calls().by_chance(0.005, random))
    faults.add(Drop(after_bytes=1_000), at=calls("GET").by_chance(0.01, random))
    faults.add(LoseAnswer(), at=writes.by_chance(0.01, random))
    faults.add(DeliverTwice(), at=writes.by_chance(0.01, random))
    faults.add(Stall(lambda: time.sleep(0.5)), at=calls().by_chance(0.005, random))


def soak(server: S3Server, options: argparse.Namespace, folder: Path) -> int:
    url = f"s3://{server.create_bucket('soak')}/table"
    if options.faults:
        make_unreliable(server.faults, Random(1))
    rng = Random(0)
    logs = [folder / f"watch-{n}.log" for n in range(2)]
    watchers = [start_watcher(url, options.master, log) for log in logs]
    ingesters = [Ingester(url, n, folder, options.rows) for n in range(2)]
    for ingester in ingesters:
        ingester.start()
    end = time.monotonic() + 60 * options.minutes
    kills = vacuums = 0
    while time.monotonic() < end:
        time.sleep(rng.uniform(4, 8))
        if options.vacuum and any(ingester.files for ingester in ingesters):
            subprocess.run(
                [*_COMPACTOR, "vacuum", url, "--grace", "20s", "--retain", "20s"],
                cwd=_ROOT, check=not options.faults, stdout=subprocess.DEVNULL,
            )  # fmt: skip
            vacuums += 1
        if options.kill and rng.random() < 0.3:
            victim = rng.randrange(2)
            watchers[victim].kill()
            watchers[victim].wait()
            watchers[victim] = start_watcher(url, options.master, logs[victim])
            kills += 1
    for ingester in ingesters:
        ingester.stop.set()
    for ingester in ingesters:
        ingester.join()
    for watcher in watchers:
        watcher.send_signal(signal.SIGTERM)
    codes = [watcher.wait(120) for watcher in watchers]
    server.faults.clear()
    return report(url, ingesters, logs, codes, kills, vacuums, may_fail=options.faults)


def report(
    url: str,
    ingesters: list[Ingester],
    logs: list[Path],
    codes: list[int],
    kills: int,
    vacuums: int,
    *,
    may_fail: bool,
) -> int:
    store = open_store(url)
    snapshot = CommitLog(store).current()
    found = Counter(v for b in scan(store, snapshot, ["id"]) for v in b.column(0).to_pylist())
    expected = Counter(row_id for ingester in ingesters for row_id in ingester.acknowledged)
    failures = [failure for ingester in ingesters for failure in ingester.failures]
    for ids in (ids for ingester in ingesters for ids in ingester.unsure):
        if any(row_id in found for row_id in ids):
            expected.update(ids)
    events = Counter(json.loads(line)["event"] for log in logs for line in log.read_text().splitlines()
                     if line.startswith("{"))  # fmt: skip
    by_level = Counter(entry.level for entry in snapshot.fragments.values())
    faults = verify(store, snapshot).faults
    print(
        f"{sum(i.files for i in ingesters)} files of {expected.total()} rows by 2 ingesting processes"
    )
    print(
        f"2 watching processes: {dict(events)}; exit codes {codes}; {kills} killed, {vacuums} vacuums"
    )
    print(
        f"version {snapshot.version}, fragments by level {dict(sorted(by_level.items()))}, "
        f"{overlapping_pairs(forest(snapshot).values())} overlapping pairs, write amplification "
        f"{snapshot.totals.write_amplification:.2f}"
    )
    print(
        f"lost {(expected - found).total()}, doubled or foreign {(found - expected).total()} rows"
    )
    print(f"faults {faults}; failed ingests {failures}")
    clean = found == expected and not faults and codes == [0, 0] and (may_fail or not failures)
    print("clean" if clean else "NOT CLEAN", logs)
    return 0 if clean else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--master", default="in-process")
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--vacuum", action="store_true")
    parser.add_argument("--faults", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    with S3Server() as server, pytest.MonkeyPatch.context() as environment:
        s3_environment(server, environment)
        return soak(server, options, folder)


if __name__ == "__main__":
    sys.exit(main())
