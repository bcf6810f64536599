"""A crash loop: real processes on one table die by SIGKILL, at named points and at random moments.

After every death the table is read and verified by a fresh process's eyes. It holds what it held before the
command, or what it holds after it, and nothing between: rows, properties and tags. Versions that were looked
at once stay as they were. A reader of changes gets from what it knew to what is there.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from compactor.errors import RestoreError, UsageError
from compactor.read.scan import scan
from compactor.read.verify import verify
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.snapshot import Snapshot
from compactor.table.version import Operation
from tests.crash.points import POINTS, Point
from tests.crash.state import Row, State, applied

ROOT = Path(__file__).parents[2]
_ROWS = 90
_IDS = 300
_READER = "reader"
_REFUSALS = {UsageError.exit_code, RestoreError.exit_code}

COMPACT = [
    ["--strategy", "overlapping", "--target-fragment-bytes", "4000"],
    ["--strategy", "leveled", "--level0-trigger-runs", "2",
     "--level1-target-bytes", "20000", "--target-fragment-bytes", "4000"],
    ["--strategy", "full"],
    [],
]  # fmt: skip
VACUUM = [
    [*flags, "--allow-shrinking"]
    for flags in (["--grace", "0", "--retain", "0"], ["--retain", "0"], ["--grace", "0"])
]
"""A table restored to its first version has lost most of its rows; a vacuum would ask whether it should."""
_PROPERTIES: list[dict[str, Any]] = [
    {"level0_trigger_runs": 2, "target_fragment_bytes": 3000},
    {"level0_trigger_runs": 5, "strategy": "tiered"},
    {"retain_seconds": 0, "strategy": None},
    {"retain_seconds": 0, "grace_seconds": 0, "target_fragment_bytes": None},
    {"grace_seconds": None, "retain_seconds": None},
    {"compression_level": 1, "slow_runs": 100, "stop_runs": 200},
]


class LostRowsError(AssertionError):
    """The table does not hold what it must."""


class CrashLoop:
    """One table; `round` runs one command, kills it perhaps, and looks at the table."""

    def __init__(
        self,
        url: str,
        seed: int,
        say: Callable[[str], None] = lambda _: None,
        *,
        merges: bool = False,
    ) -> None:
        """merges: whether the newest row of a key replaces the others, by row policy `last`."""
        self._url = url
        self._random = random.Random(seed)
        self._say = say
        self._folder = Path(tempfile.mkdtemp(prefix="crash-loop-"))
        self._values = 0
        self._state = State(merges=merges)
        self._at: dict[int, Counter[Row]] = {}
        """The rows of versions that were looked at."""
        self.deaths = 0
        self.rounds = 0
        self.readings = 0
        """Readings of changes that came to their end."""

    def run(self, rounds: int, deaths: int = 0) -> None:
        """Runs so many rounds, and goes on until so many processes have died."""
        self.begin()
        while self.rounds < rounds or self.deaths < deaths:
            self.round()
        self.end()

    def run_for(self, seconds: float) -> None:
        """Runs rounds until this time is over."""
        end = time.monotonic() + seconds
        self.begin()
        while time.monotonic() < end:
            self.round()
        self.end()

    def begin(self) -> None:
        """Creates the table."""
        self._ingest(None)
        self.check()

    def end(self) -> None:
        """Reads the changes once more: in a few rounds, nothing else may have done so."""
        self._read_changes(None)
        self.check()

    def round(self) -> None:
        self.rounds += 1
        point = self._random.choice([None, "time", *POINTS, *POINTS])
        acts = {
            self._ingest: 5, self._overwrite: 2, self._update: 2, self._delete: 2, self._compact: 4,
            self._change_during_compaction: 2, self._vacuum: 2, self._restore: 2, self._undo: 1,
            self._alter: 2, self._tag: 2, self._untag: 1, self._read_changes: 3,
        }  # fmt: skip
        [act] = self._random.choices(list(acts), list(acts.values()))
        act(point)
        self.check()

    def check(self) -> None:
        """Raises `LostRowsError`."""
        newest = self._newest()
        faults = verify(newest.store, newest.latest).faults
        if faults:
            raise LostRowsError(f"round {self.rounds}: {faults}")
        self._at[newest.latest.version] = Counter(self._state.rows)
        if difference := self._state.differs(self._found(newest)):
            raise LostRowsError(
                f"round {self.rounds}: {difference} at version {newest.latest.version}"
            )
        for version in self._random.sample(kept := self._kept(newest.latest), min(2, len(kept))):
            rows = self._rows(newest, newest.at(version))
            if rows != self._at[version]:
                raise LostRowsError(f"round {self.rounds}: version {version} is not as it was")

    # --- commands ---

    def _ingest(self, point: Point | str | None) -> None:
        rows = self._new_rows(range(_IDS))
        options = ["--upsert"] if self._state.merges and self._at else []
        self._write(options, rows, self._state.added(rows), point)

    def _overwrite(self, point: Point | str | None) -> None:
        if self._random.random() < 0.2:
            rows = self._new_rows(range(_IDS))
            state = self._state.without(lambda _: True).added(rows)
            self._write(["--overwrite"], rows, state, point)
            return
        low = self._random.randrange(_IDS)
        ids = range(low, low + self._random.choice([20, 150]))
        rows = self._new_rows(ids)
        where = f"id BETWEEN {ids[0]} AND {ids[-1]}"
        state = self._state.without(ids.__contains__).added(rows)
        self._write(["--overwrite", "--where", where], rows, state, point)

    def _update(self, point: Point | str | None) -> None:
        where, matches = self._condition()
        by = self._random.randrange(1, 1000) * 1_000_000
        arguments = ["update", self._url, "--where", where, "--set", f"n = n + {by}"]
        self._try(arguments, self._state.updated(matches, by), point)

    def _delete(self, point: Point | str | None) -> None:
        where, matches = self._condition()
        self._try(["delete", self._url, "--where", where], self._state.without(matches), point)

    def _compact(self, point: Point | str | None) -> None:
        self._try(self._compaction(), self._state, point)

    def _change_during_compaction(self, point: Point | str | None) -> None:
        """A deletion or an update while a compaction runs, which may die."""
        compaction = self._compaction()
        began = self._start(compaction, point)
        if self._random.random() < 0.5:
            time.sleep(self._random.uniform(0, 0.8))
        self._random.choice([self._delete, self._update])(None)
        self._end(began, compaction, point)

    def _vacuum(self, point: Point | str | None) -> None:
        self._try(["vacuum", self._url, *self._random.choice(VACUUM)], self._state, point)

    def _restore(self, point: Point | str | None) -> None:
        """Restores some version that was looked at and is kept."""
        kept = self._kept(self._newest().latest)
        version = self._random.choice(kept)
        moment = ["--version", str(version)]
        for name, tagged in self._state.tags.items():
            if tagged == version:
                moment = ["--tag", name]
        state = State(
            merges=self._state.merges, rows=self._at[version], properties=self._state.properties,
            tags=self._state.tags,
        )  # fmt: skip
        self._try(["restore", self._url, *moment], state, point)

    def _undo(self, point: Point | str | None) -> None:
        """Undoes some compaction, if that is still possible."""
        fragments = self._newest().latest.fragments.all()
        runs = sorted({entry.run for entry in fragments if entry.run != entry.key})
        if runs:
            arguments = ["undo", self._url, self._random.choice(runs)]
            self._try(arguments, self._state, point, may_refuse=True)

    def _alter(self, point: Point | str | None) -> None:
        changes = self._random.choice(_PROPERTIES)
        arguments = ["alter", self._url]
        for name, value in changes.items():
            arguments += ["--unset", name] if value is None else ["--set", f"{name}={value}"]
        self._try(arguments, self._state.altered(changes), point)

    def _tag(self, point: Point | str | None) -> None:
        name = self._random.choice(["a", "b", "c"])
        version = self._random.choice(self._kept(self._newest().latest))
        arguments = ["tag", self._url, name, "--version", str(version), "--move"]
        self._try(arguments, self._state.tagged(name, version), point)

    def _untag(self, point: Point | str | None) -> None:
        if names := sorted(self._state.tags):
            name = self._random.choice(names)
            self._try(["untag", self._url, name], self._state.tagged(name, None), point)

    def _read_changes(self, point: Point | str | None) -> None:
        """Reads on from where the reader ended. Its tag moves only once all that it read is written."""
        log = self._newest()
        latest = log.latest
        newest, since = latest.version, self._state.tags.get(_READER)
        path = self._folder / "changes.parquet"
        path.unlink(missing_ok=True)
        arguments = ["changes", self._url, "--reader", _READER, "-o", str(path)]
        if since is None:
            # A tag keeps its own version, and not those that follow.
            since = min(version for version in self._kept(latest) if version >= latest.oldest)
            arguments += ["--since", str(since)]
        moves = _READER not in self._state.tags or any(
            version.changes.operation is not Operation.TAG
            for version in log.history.versions_after(log.at(since), newest)
        )
        state = self._state.tagged(_READER, newest) if moves else self._state
        is_done = self._try(arguments, state, point)
        if not is_done and self._state is not state:
            return  # it died before it had moved
        if not is_done and not moves:
            return  # whether all was written, nothing tells
        table = pq.read_table(path)
        rows = zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True)
        try:
            after = applied(self._at[since], zip(rows, table["_change"].to_pylist(), strict=True))
        except ValueError as error:
            raise LostRowsError(f"round {self.rounds}: changes: {error}") from error
        if after != self._at[newest]:
            raise LostRowsError(
                f"round {self.rounds}: changes since {since} until {newest} do not lead there"
            )
        self.readings += 1

    # --- what is tried, and what is found ---

    def _condition(self) -> tuple[str, Callable[[int], bool]]:
        """Some rows by their ids."""
        by, rest = self._random.choice([3, 7, 11, 23]), self._random.randrange(3)
        return f"id % {by} = {rest}", lambda key: key % by == rest

    def _compaction(self) -> list[str]:
        options = self._random.choice(COMPACT)
        options = [*options, "--master", "in-process", "--max-rows-per-row-group", "40"]
        return ["compact", self._url, *options]

    def _new_rows(self, ids: range) -> list[Row]:
        rows = []
        for _ in range(_ROWS):
            self._values += 1
            rows.append((self._random.choice(ids), self._values))
        return rows

    def _write(
        self, options: Sequence[str], rows: Sequence[Row], state: State, point: Point | str | None
    ) -> None:
        path = self._folder / f"{self._values}.parquet"
        ids, values = zip(*rows, strict=True)
        texts = [f"row {value} of {key}" for key, value in rows]
        pq.write_table(pa.table({"id": ids, "n": values, "text": texts}), path)
        arguments = ["ingest", self._url, str(path), *options]
        if not self._at:
            arguments += ["--sort-by", "id", "--rows-per-fragment", "50", "--back-pressure", "off"]
            arguments += ["--row-policy", "last"] if state.merges else []
            state = state.altered({"rows_per_fragment": 50, "back_pressure": "off"})
        self._try(arguments, state, point)
        path.unlink()

    def _newest(self) -> CommitLog:
        log = CommitLog(open_store(self._url))
        log.refresh()
        return log

    def _kept(self, latest: Snapshot) -> list[int]:
        """Versions that were looked at and are kept."""
        return [version for version in self._at if latest.keeps(version)]

    def _found(self, newest: CommitLog) -> State:
        latest = newest.latest
        return State(
            merges=self._state.merges,
            rows=self._rows(newest, latest),
            properties=dict(latest.properties),
            tags={tag.name: tag.version for tag in latest.tags},
        )

    def _rows(self, log: CommitLog, snapshot: Snapshot) -> Counter[Row]:
        rows: Counter[Row] = Counter()
        for batch in scan(log.store, snapshot, ["id", "n"]):
            ids, values = (column.to_pylist() for column in batch.columns)
            rows.update(zip(ids, values, strict=True))
        return rows

    def _try(
        self,
        arguments: list[str],
        after: State,
        point: Point | str | None,
        *,
        may_refuse: bool = False,
    ) -> bool:
        """Runs a command, and returns whether it came to its end.

        If it dies, either what it was to do is done, or nothing: `check` is told which to look for.
        """
        process = self._start(arguments, point)
        is_done = self._end(process, arguments, point, may_refuse=may_refuse)
        if is_done or not after.differs(self._found(self._newest())):
            self._state = after
        return is_done

    def _start(self, arguments: list[str], point: Point | str | None) -> subprocess.Popen[str]:
        environment = dict(os.environ)
        if isinstance(point, Point):
            environment["CRASH_AT"] = str(point)
        return subprocess.Popen(
            [sys.executable, "-m", "tests.crash.child", *arguments],
            cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip

    def _end(
        self,
        process: subprocess.Popen[str],
        arguments: list[str],
        point: Point | str | None,
        *,
        may_refuse: bool = False,
    ) -> bool:
        """Waits for a command. Raises `LostRowsError` if it failed of itself."""
        if point == "time":
            time.sleep(self._random.uniform(0.4, 1.2))
            process.kill()
        output, _ = process.communicate(timeout=240)
        died = process.returncode == -signal.SIGKILL
        self._say(f"{self.rounds}: {arguments[0]} at {point}: {'killed' if died else 'ended'}")
        self.deaths += died
        if may_refuse and process.returncode in _REFUSALS and output.count("\n") == 1:
            return True
        if not died and process.returncode != 0:
            raise LostRowsError(f"{arguments} failed ({process.returncode}): {output}")
        return not died
