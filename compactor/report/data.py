"""The contents of a report as plain values."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from compactor.common.plain_values import plain_dict
from compactor.planner.spread import Spread
from compactor.read.read_reports import StoredTemplates


class Headline(Struct, frozen=True, kw_only=True):
    """The main figures of the reported version."""

    version: int
    committed_unix_ms: int
    oldest_version: int
    """Oldest readable version."""
    made_unix_ms: int
    """Time of the report."""
    fragments: int
    levels: int
    """Number of non-empty levels."""
    windows: int | None
    """Number of non-empty time windows; None for a table without time windows."""
    rows: int
    """Live rows, without deleted ones."""
    deleted_rows: int
    size_bytes: int
    raw_bytes: int
    overlapping_pairs: int
    debt_score: float
    pressure: str
    level0_runs: int
    """Maximum of level-0 sorted runs in a time window."""
    pending_bytes: int
    write_amplification: float
    sorted_runs: int
    """Sorted runs that a full scan merges."""
    worst_point_runs: int
    """Fragments that contain the worst key."""


class LevelRow(Struct, frozen=True, kw_only=True):
    """The figures of one level."""

    level: int
    fragments: int
    sorted_runs: int
    rows: int
    size_bytes: int
    lanes: int
    """Lanes in which fragments are drawn without overlap."""
    fragments_per_lane: int
    """1, or more to limit the lanes: then the nth lane has bars where more than n - 1 times this many
    fragments overlap."""


class Bar(Struct, frozen=True, kw_only=True):
    """An interval on the key axis.

    Represents a fragment; several neighbours, if there are too many to draw; or part of the depth profile, if
    too many overlap.
    """

    level: int
    lane: int
    start: int
    """Rank of the first key among all first and last keys drawn."""
    end: int
    """Rank of the last key plus one, so that bars of disjoint fragments do not overlap."""
    fragments: int
    """Number of fragments; in a profile, the maximum overlap."""
    rows: int
    """Number of rows; 0 in a profile, as is `size_bytes`."""
    size_bytes: int
    first_key: str
    last_key: str
    key: str
    """Object key of the first fragment; empty in a profile."""
    is_quarantined: bool


class SizeBin(Struct, frozen=True):
    """The number of fragments of at least `lower_bytes` and less than twice that."""

    level: int
    lower_bytes: int
    fragments: int


class Panel(Struct, frozen=True, kw_only=True):
    """The fragments of one version."""

    version: int
    committed_unix_ms: int
    fragments: int
    levels: tuple[LevelRow, ...]
    bars: tuple[Bar, ...]
    sizes: tuple[SizeBin, ...]


class Tick(Struct, frozen=True):
    """A label of the key axis."""

    rank: int
    parts: tuple[str, ...]
    """Shortened value per sort column."""


class KeySpace(Struct, frozen=True):
    """The fragments of one or two versions, on a common key axis."""

    sort: tuple[str, ...]
    """Sort columns by shown name."""
    ranks: int
    ticks: tuple[Tick, ...]
    before: Panel | None
    """The earlier version; None without a comparison."""
    now: Panel


class HistoryPoint(Struct, frozen=True, kw_only=True):
    """The figures of the table after one version."""

    version: int
    committed_unix_ms: int
    operation: str
    fragments: int
    size_bytes: int
    sorted_runs: int
    worst_point_runs: int
    mean_point_runs: float
    """Average number of fragments that contain the key of a random row."""
    write_amplification: float
    """Write amplification up to this version."""
    ingested_rows: int
    """Rows ingested over the table's life up to this version."""
    ingested_bytes: int


class CompactionRow(Struct, frozen=True):
    """The record of an attempted compaction; see `compactor.table.compaction_record`."""

    version: int
    committed_unix_ms: int
    figures: dict[str, Any]


class CommitterRow(Struct, frozen=True, kw_only=True):
    """What the processes of one host have committed."""

    host: str
    """Empty if the commits do not say."""
    processes: int
    commits: dict[str, int]
    """Number of commits by operation, the most frequent first."""
    rows: int
    """Rows ingested."""
    last_unix_ms: int


class TableHistory(Struct, frozen=True, kw_only=True):
    """The history of a range of versions."""

    first_version: int
    last_version: int
    points: tuple[HistoryPoint, ...]
    runs: tuple[CompactionRow, ...]
    """Newest first."""
    compactions_without_figures: int
    """Compaction commits without a record."""
    committers: tuple[CommitterRow, ...]
    """Hosts of the versions read, the last to commit first."""


class ColumnRow(Struct, frozen=True, kw_only=True):
    """The figures of one column."""

    name: str
    type: str
    sort_position: int | None
    """Position in the sort schema, from 1; None for non-key columns."""
    stored_bytes: int
    raw_bytes: int
    null_share: float | None
    """Fraction of nulls in the footers read; None if none has the column."""
    encodings: dict[str, int]
    """Chunk counts by encoding in the footers read."""


class Columns(Struct, frozen=True):
    """The figures of all columns."""

    rows: tuple[ColumnRow, ...]
    """Columns in table order. Bytes cover all fragments, from the log."""
    footers_read: int
    fragments: int
    unreadable: tuple[tuple[str, str], ...]
    """Fragments with unreadable footers, and the reasons."""


class PlannedRow(Struct, frozen=True, kw_only=True):
    """A step that the next compaction would take."""

    what: str
    reason: str
    fragments: int
    size_bytes: int
    output_level: int | None
    predicted_seconds: Spread | None


class RunningRow(Struct, frozen=True):
    """A compaction that holds a lease."""

    compaction_id: str
    owner: str
    fragments: int
    output_level: int
    expires_unix_ms: int


class WaitingFragment(Struct, frozen=True):
    """A fragment that waits for quarantined ones."""

    key: str
    level: int
    rows: int
    size_bytes: int


class HeldRow(Struct, frozen=True, kw_only=True):
    """A step that would be due without quarantine."""

    what: str
    reason: str
    output_level: int
    window: str | None
    """Time window of the step; None for a table without time windows."""
    quarantined: tuple[str, ...]
    """Keys of the fragments that hold it up."""
    waiting: tuple[WaitingFragment, ...]
    """Its other inputs, without those that a due step takes."""

    @property
    def waiting_bytes(self) -> int:
        return sum(fragment.size_bytes for fragment in self.waiting)

    @property
    def levels(self) -> tuple[int, ...]:
        """Levels of the waiting fragments, ascending."""
        return tuple(sorted({fragment.level for fragment in self.waiting}))


class QuarantineRow(Struct, frozen=True, kw_only=True):
    """A fragment in quarantine."""

    key: str
    level: int
    reason: str
    since_unix_ms: int
    size_bytes: int
    rows: int
    held_fragments: int
    """Fragments that wait for it, and perhaps for others too."""
    held_bytes: int


class Pending(Struct, frozen=True):
    """Work that is due, running or held up."""

    planned: tuple[PlannedRow, ...]
    blocked: tuple[str, ...]
    """Due steps that another compaction or the memory limit blocks, a line each."""
    held: tuple[HeldRow, ...]
    """Steps that quarantine holds up."""
    running: tuple[RunningRow, ...]
    quarantine: tuple[QuarantineRow, ...]

    @property
    def held_bytes(self) -> int:
        """Size of the waiting fragments, without those in quarantine. No fragment is in two steps."""
        return sum(row.waiting_bytes for row in self.held)

    @property
    def held_fragments(self) -> int:
        return sum(len(row.waiting) for row in self.held)


class Verdict(Struct, frozen=True):
    """How a table is, in a sentence, and what to do."""

    text: str
    command: str
    """The next command."""
    is_bad: bool = False


class Report(Struct, frozen=True, kw_only=True):
    """Everything that a report states of a table."""

    table: str
    """Address of the table."""
    verdict: Verdict
    headline: Headline
    key_space: KeySpace
    history: TableHistory
    columns: Columns
    templates: tuple[StoredTemplates, ...]
    """Of the largest columns that are stored as templates, the largest first."""
    pending: Pending
    entity_merge: tuple[str, ...]
    """Lines about the last run of an entity merge that wrote to the table; none for other tables."""
    notes: tuple[str, ...]
    """Sentences on what could not be read or is not shown."""

    def to_json(self) -> dict[str, Any]:
        return plain_dict(self)
