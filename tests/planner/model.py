"""A table whose fragments are lists of rows in memory: executes what the real planner decides.

A row is (key, number of its ingest). Bytes are rows times `ROW_BYTES`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from msgspec import structs
from msgspec.structs import replace

from compactor.planner.plan import plan_compactions
from compactor.planner.spec import CompactionPlan, CompactionSpec
from compactor.planner.tree import forest
from compactor.settings.compaction import CompactionSettings, Policy
from compactor.table.entry import FragmentEntry
from compactor.table.metadata import TableMetadata, TimeWindows
from compactor.table.object_names import fragment_key
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Lease, Operation, Quarantine, Version
from lsm_fragment.container.footer import ColumnBytes
from tests.support.entries import made_up_entry
from tests.support.fragments import sort_schema

Row = tuple[int, int]
ROW_BYTES = 100
METADATA = TableMetadata(schema=pa.schema([("k", pa.int64())]), sort=sort_schema("k"))


class ModelTable:
    """One table; `now_unix_ms` stands still unless moved."""

    def __init__(
        self,
        policy: Policy,
        settings: CompactionSettings,
        windows: TimeWindows | None = None,
    ) -> None:
        self.policy, self.settings = policy, settings
        self.rows: dict[str, list[Row]] = {}
        self.now_unix_ms = 0
        self.rewritten_rows = 0
        self._ids = itertools.count()
        self.snapshot = Snapshot.empty()
        metadata = replace(METADATA, windows=windows)
        self._commit(Changes(operation=Operation.INGEST, metadata=metadata))

    def ingest(self, keys: Iterable[int], window: int | None = None) -> None:
        number = self.snapshot.version + 1
        rows = sorted((key, number) for key in keys)
        name = self._name()
        entry = self._entry(name, rows, level=0, run=name, sequence=(number, 0), window=window)
        self._commit(Changes(operation=Operation.INGEST, adds=(entry,)))

    def plan(self) -> CompactionPlan:
        return plan_compactions(self.snapshot, self.policy, self.settings, self.now_unix_ms)

    def lease(self, spec: CompactionSpec) -> str:
        compaction_id = f"c{next(self._ids)}"
        keys = tuple(entry.key for entry in spec.inputs)
        lease = Lease(
            compaction_id=compaction_id,
            owner="model",
            inputs=keys,
            output_level=spec.output_level,
            expires_unix_ms=1 << 60,
            began_unix_ms=1,
        )
        self._commit(Changes(operation=Operation.LEASE, leases=(lease,)))
        return compaction_id

    def quarantine(self, key: str) -> None:
        self._commit(
            Changes(operation=Operation.QUARANTINE, quarantines=(Quarantine(key, "why", 0),))
        )

    def run(self, spec: CompactionSpec, compaction_id: str | None = None) -> None:
        """The merge: by age, stable, cut at changes of key as the real one does."""
        run = compaction_id or f"c{next(self._ids)}"
        merged = sorted(
            (row for entry in spec.inputs for row in self.rows[entry.key]), key=lambda row: row[0]
        )
        self.rewritten_rows += len(merged)
        sequence = min(entry.sequence for entry in spec.inputs)
        adds = [
            self._entry(self._name(), part, level=spec.output_level, run=run, sequence=sequence,
                        window=spec.window)
            for part in self._cut(merged, [bound[0] for bound in spec.cut_keys])
        ]  # fmt: skip
        removes = tuple(entry.key for entry in spec.inputs)
        self._commit(Changes(operation=Operation.COMPACT, adds=tuple(adds), removes=removes))

    def move_and_expire(self, plan: CompactionPlan) -> None:
        for move in plan.trivial_moves:
            adds = tuple(structs.replace(entry, level=move.output_level) for entry in move.entries)
            self._commit(
                Changes(
                    operation=Operation.TRIVIAL_MOVE,
                    adds=adds,
                    removes=tuple(entry.key for entry in adds),
                )
            )
        if plan.expiry.entries:
            removes = tuple(entry.key for entry in plan.expiry.entries)
            self._commit(Changes(operation=Operation.EXPIRE, removes=removes))

    def settle(self, max_rounds: int = 100) -> int:
        """Runs plans until there are none; rounds taken."""
        for number in range(max_rounds):
            plan = self.plan()
            if not plan:
                return number
            self.move_and_expire(plan)
            for spec in plan.specs:
                self.run(spec)
        raise AssertionError(f"still planning after {max_rounds} rounds: {self.plan()}")

    def scan(self, window: int | None = None) -> list[Row]:
        """Rows in order of key, equal ones as the table says: oldest fragment first."""
        entries = [e for e in self.snapshot.by_age() if e.window == window]
        rows = [row for entry in entries for row in self.rows[entry.key]]
        return sorted(rows, key=lambda row: row[0])

    def check_invariants(self) -> None:
        for tree in forest(self.snapshot).values():
            for level in range(1, tree.deepest + 1):
                items = tree.level(level).items
                for a, b in itertools.pairwise(items):
                    assert self.rows[a.entry.key][-1][0] < self.rows[b.entry.key][0][0], (a, b)
        for window in {entry.window for entry in self.snapshot.fragments.values()}:
            rows = self.scan(window)
            assert rows == sorted(rows), "equal keys are not in order of ingestion"

    def _cut(self, rows: Sequence[Row], cut_keys: Sequence[int]) -> Iterator[list[Row]]:
        target = max(1, self.settings.target_fragment_bytes // ROW_BYTES)
        part: list[Row] = []
        for row in rows:
            crosses = part and any(part[-1][0] < cut <= row[0] for cut in cut_keys)
            is_full = len(part) >= target or (crosses and len(part) * 4 >= target)
            if part and is_full and part[-1][0] != row[0]:
                yield part
                part = []
            part.append(row)
        yield part

    def _entry(self, key: str, rows: list[Row], **values) -> FragmentEntry:
        self.rows[key] = rows
        size = len(rows) * ROW_BYTES
        return made_up_entry(
            key,
            (rows[0][0],),
            (rows[-1][0],),
            rows=len(rows),
            size_bytes=size,
            peak_chunk_bytes=size,
            peak_row_bytes=ROW_BYTES,
            columns={"k": ColumnBytes(size, size)},
            **values,
        )

    def _name(self) -> str:
        return fragment_key(self.snapshot.version, f"a{next(self._ids)}", 0)

    def _commit(self, changes: Changes) -> None:
        self.snapshot = self.snapshot.apply(
            Version(
                number=self.snapshot.version + 1, commit_id="", committed_unix_ms=0, changes=changes
            )
        )
