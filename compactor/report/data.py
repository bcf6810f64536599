"""What a report says of a table. Pure values: no drawing, no HTML."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Headline:
    version: int
    committed_unix_ms: int
    oldest_version: int
    """The first that can still be read."""
    made_unix_ms: int
    """When the report was made."""
    fragments: int
    levels: int
    """That hold anything."""
    windows: int | None
    """Time windows that hold anything; None for a table that has none."""
    rows: int
    """Without deleted ones."""
    deleted_rows: int
    size_bytes: int
    raw_bytes: int
    overlapping_pairs: int
    debt_score: float
    pressure: str
    level0_runs: int
    """Of the time window that has most."""
    pending_bytes: int
    write_amplification: float
    sorted_runs: int
    """That a read of all keys must merge."""
    worst_point_runs: int
    """Fragments that a read of one key must look at, for the worst key."""


@dataclass(frozen=True, slots=True)
class LevelRow:
    level: int
    fragments: int
    sorted_runs: int
    rows: int
    size_bytes: int
    lanes: int
    """In which the fragments are drawn, so that none hides another."""
    fragments_per_lane: int
    """1, or, where there would be too many lanes: a bar of the nth is where more than n - 1 times so many
    fragments overlap."""


@dataclass(frozen=True, slots=True)
class Bar:
    """An interval on the key axis: a fragment, or several neighbours where there are too many; or, where too
    many overlap, a lane of the profile of how many do."""

    level: int
    lane: int
    start: int
    """Rank of the first key among all first and last keys that are drawn."""
    end: int
    """Rank of the last key, and one: bars of disjoint fragments do not overlap."""
    fragments: int
    """In it; of a profile, how many overlap at most."""
    rows: int
    """Of a profile 0, as `size_bytes`."""
    size_bytes: int
    first_key: str
    last_key: str
    key: str
    """Of the object; of the first of several; of a profile none."""
    is_quarantined: bool


@dataclass(frozen=True, slots=True)
class SizeBin:
    """Fragments of `lower_bytes` or more, and less than twice that."""

    level: int
    lower_bytes: int
    fragments: int


@dataclass(frozen=True, slots=True)
class Panel:
    """The fragments of one version."""

    version: int
    committed_unix_ms: int
    fragments: int
    levels: tuple[LevelRow, ...]
    bars: tuple[Bar, ...]
    sizes: tuple[SizeBin, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """A label of the key axis."""

    rank: int
    parts: tuple[str, ...]
    """A value of each sort column, shortened."""


@dataclass(frozen=True, slots=True)
class KeySpace:
    sort: tuple[str, ...]
    """The sort columns, as people know them."""
    ranks: int
    ticks: tuple[Tick, ...]
    before: Panel | None
    """None: the table has no earlier version to compare with."""
    now: Panel


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    version: int
    committed_unix_ms: int
    operation: str
    fragments: int
    size_bytes: int
    sorted_runs: int
    worst_point_runs: int
    mean_point_runs: float
    """For the key of a random row."""
    write_amplification: float
    """Of all versions up to this one."""


@dataclass(frozen=True, slots=True)
class CompactionRow:
    """A compaction that was tried; see `compactor.table.compaction_record`."""

    version: int
    committed_unix_ms: int
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TableHistory:
    first_version: int
    last_version: int
    points: tuple[HistoryPoint, ...]
    runs: tuple[CompactionRow, ...]
    """Newest first."""
    compactions_without_figures: int
    """Commits of compactions by programs that kept none."""


@dataclass(frozen=True, slots=True)
class ColumnRow:
    name: str
    type: str
    sort_position: int | None
    """From 1; None for a column that is not sorted by."""
    stored_bytes: int
    raw_bytes: int
    null_share: float | None
    """Of the rows of the footers read; None if none has the column."""
    encodings: dict[str, int]
    """Chunks of the footers read, by encoding."""


@dataclass(frozen=True, slots=True)
class Columns:
    rows: tuple[ColumnRow, ...]
    """In the order of the table. Bytes are of all fragments, from the log."""
    footers_read: int
    fragments: int
    unreadable: tuple[tuple[str, str], ...]
    """Fragment and why its footer could not be read."""


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """A step that `compactor plan` would take next."""

    what: str
    reason: str
    fragments: int
    size_bytes: int
    output_level: int | None
    predicted_seconds: float | None


@dataclass(frozen=True, slots=True)
class RunningRow:
    """A compaction that stands leased."""

    compaction_id: str
    owner: str
    fragments: int
    output_level: int
    expires_unix_ms: int


@dataclass(frozen=True, slots=True)
class WaitingFragment:
    key: str
    level: int
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class HeldRow:
    """A step that would be due if nothing were in quarantine."""

    what: str
    reason: str
    output_level: int
    window: str | None
    """The time window that it is in; None for a table that has none."""
    quarantined: tuple[str, ...]
    """Keys of the fragments that hold it up."""
    waiting: tuple[WaitingFragment, ...]
    """Its other inputs that no step that is due takes."""

    @property
    def waiting_bytes(self) -> int:
        return sum(fragment.size_bytes for fragment in self.waiting)

    @property
    def levels(self) -> tuple[int, ...]:
        """Of what waits."""
        return tuple(sorted({fragment.level for fragment in self.waiting}))


@dataclass(frozen=True, slots=True)
class QuarantineRow:
    key: str
    level: int
    reason: str
    since_unix_ms: int
    size_bytes: int
    rows: int
    held_fragments: int
    """That wait for it, and maybe for others too."""
    held_bytes: int


@dataclass(frozen=True, slots=True)
class Pending:
    planned: tuple[PlannedRow, ...]
    blocked: tuple[str, ...]
    """What would be due, but is held up by another's compaction or by the memory limit: a line each."""
    held: tuple[HeldRow, ...]
    """What would be due, but is held up by quarantine."""
    running: tuple[RunningRow, ...]
    quarantine: tuple[QuarantineRow, ...]

    @property
    def held_bytes(self) -> int:
        """Of fragments that wait, without those in quarantine. No fragment is in two steps."""
        return sum(row.waiting_bytes for row in self.held)

    @property
    def held_fragments(self) -> int:
        return sum(len(row.waiting) for row in self.held)


@dataclass(frozen=True, slots=True)
class Report:
    table: str
    """Its address."""
    headline: Headline
    key_space: KeySpace
    history: TableHistory
    columns: Columns
    pending: Pending
    notes: tuple[str, ...]
    """What could not be read or is not shown."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
