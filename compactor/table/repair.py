"""Examines a damaged log, and puts aside what does not belong to it. Nothing is ever deleted for good.

Put aside are strays beyond a gap after the end of the log, and checkpoints that can't be read or
contradict the log. The log that is left says what it said, or is closer to the truth. Files of this table
beyond a gap, and an object in the place of the next version that is not this version, may stand for rows;
they go aside only if the user names the version at which the log is to end. Then a mark says up to which
version the rest is given up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct, field

from compactor.common.clock import Ids, random_id
from compactor.common.plain_values import plain_dict
from compactor.errors import (
    CompactorError,
    DataError,
    ObjectNotFoundError,
    StoreError,
    StoreUnreachableError,
    TableNotFoundError,
    UsageError,
)
from compactor.stores.base import ObjectInfo, ReadOnlyStore, Store, create_own
from compactor.table.history import History
from compactor.table.lost_versions import last_base, lost_version, unnamed_objects
from compactor.table.object_names import (
    DATA_PREFIX,
    aside_key,
    base_version,
    checkpoint_key,
    floor_key,
    given_up_key,
    version_key,
)
from compactor.table.proof import Listing, Proof, list_log
from compactor.table.snapshot import Snapshot

_COPY_BYTES = 1 << 20
_REFUSED: Final = (
    "the store refuses to give it: restore it, or remove it by hand if it is not the table's"
)


class Finding(Struct, frozen=True):
    """One object of the log that is wrong or missing."""

    key: str
    reason: str
    goes_aside: bool
    """Whether a repair puts it aside; otherwise it needs a backup, or a version at which to end the log."""


class Meaning(Struct, frozen=True):
    """The table as readers of a log see it, or the error that they get."""

    version: int = 0
    fragments: int = 0
    rows: int = 0
    error: str = ""
    """Why it can't be read; empty if it can."""

    def to_json(self) -> dict[str, Any]:
        if self.error:
            return {"error": self.error}
        return {"version": self.version, "fragments": self.fragments, "rows": self.rows}


class RepairReport(Struct, kw_only=True):
    """The findings about a log, and its meaning before and after the repair."""

    now: Meaning
    after: Meaning
    """The meaning once everything is put aside that goes aside."""
    findings: list[Finding] = field(default_factory=list)
    end: int = 0
    """The last version up to which the log is complete."""
    floor: int = 0
    """The version at which the log is to begin if its first checkpoint is damaged; 0 if it is not."""
    given_up: int = 0
    """The last version that is given up, by the end that the user named; 0 if none is."""
    unnamed_objects: int = 0
    """Fragments and deletions that were written at the last version, and that no version names."""
    aside: str = ""
    """The prefix under which objects were put; empty if none was."""

    @property
    def aside_keys(self) -> list[str]:
        return [finding.key for finding in self.findings if finding.goes_aside]

    def to_json(self) -> dict[str, Any]:
        return {
            "now": self.now.to_json(),
            "after": self.after.to_json(),
            "findings": [plain_dict(finding) for finding in self.findings],
            "end": self.end,
            "floor": self.floor or None,
            "given_up": self.given_up or None,
            "unnamed_objects": self.unnamed_objects,
            "aside": self.aside or None,
        }


def repair(
    store: Store, *, end_at: int | None = None, apply: bool = False, ids: Ids = random_id
) -> RepairReport:
    """Finds the faults of a table's log; with `apply`, puts aside the objects that do not belong to it.

    end_at: the version at which the log is to end, where log files are lost or damaged.
    Raises `TableNotFoundError`, `UsageError` for an end that the log does not reach or need, `DataError` if
    the log would not be readable afterwards, and `StoreError`.
    """
    report = diagnose(store, end_at)
    if not apply or not (report.aside_keys or report.given_up):
        return report
    if report.after.error:
        raise DataError(f"{report.after.error}; nothing was put aside")
    if report.after.version == 0 and any(
        base_version(info.key) is not None for info in store.list(DATA_PREFIX)
    ):
        raise DataError(
            f"{store.url}: no log would be left, but {DATA_PREFIX} has fragments of its versions; restore "
            "the log from a backup; nothing was put aside"
        )
    if report.floor:
        create_own(store, floor_key(report.floor), b"")
    repair_id = ids()
    report.aside = aside_key(repair_id, "")
    if report.given_up:
        create_own(store, given_up_key(repair_id, report.given_up), b"")
    # Log files go newest first, so that the rest is never mistaken for the whole log.
    for key in sorted(report.aside_keys, reverse=True):
        _put_aside(store, key, report.aside + key)
    return report


def diagnose(store: ReadOnlyStore, end_at: int | None = None) -> RepairReport:
    """Reads the whole log and all its checkpoints. Raises what `repair` raises."""
    history = History(store)
    listing = list_log(history)
    newest, now = _meaning(history)
    if newest is not None and newest.version == 0:
        raise TableNotFoundError(f"{store.url}: no table here; `compactor ingest` creates one")
    doctor = _Doctor(store, history, listing)
    if newest is None:
        newest = doctor.whole_part()
    if end_at is not None and end_at != newest.version:
        raise UsageError(
            f"{store.url}: the log is complete up to version {newest.version}; --end-at can name "
            "only that version"
        )
    findings = doctor.findings(newest, is_end_named=end_at is not None)
    given_up = doctor.last_known(newest.version) if end_at is not None else 0
    if end_at is None and not now.error:
        findings += doctor.lost(newest)
    hidden = {finding.key for finding in findings if finding.goes_aside}
    added = [floor_key(doctor.new_floor)] if doctor.new_floor else []
    _, after = _meaning(History(_Without(store, hidden, added)))
    return RepairReport(
        now=now,
        after=after,
        findings=findings,
        end=newest.version,
        floor=doctor.new_floor,
        given_up=given_up,
        unnamed_objects=0 if findings or given_up else unnamed_objects(store, newest.version),
    )


def log_faults(store: ReadOnlyStore) -> list[str]:
    """Returns the faults of the log and its checkpoints, one line each."""
    try:
        return [f"{store.url}/{f.key}: {f.reason}" for f in diagnose(store).findings]
    except DataError as error:
        return [str(error)]


class _Doctor:
    def __init__(self, store: ReadOnlyStore, history: History, listing: Listing) -> None:
        self._store = store
        self._history = history
        self._listing = listing
        self._own_beyond = 0
        """The last version of this table beyond the end of its log."""
        self.new_floor = 0
        """The version at which the log can begin, if the checkpoint at which it begins is damaged."""

    def whole_part(self) -> Snapshot:
        """Returns the newest snapshot that needs no lost or damaged file. Raises `DataError`."""
        end, table_id = self._listing.first - 1, None
        for number in self._listing.files:
            if number < self._listing.first:
                continue
            try:
                if number != end + 1:
                    break
                table_id = self._history.read(number, table_id).table_id
            except (DataError, ObjectNotFoundError):
                break
            except StoreError as error:
                if isinstance(error, StoreUnreachableError) or number == self._listing.first:
                    raise
                break
            end = number
        later = {version_key(number) for number in self._listing.beyond(end)}
        later |= {checkpoint_key(v) for v in self._listing.marks.checkpoints if v > end}
        return History(_Without(self._store, later)).newest(Snapshot.empty()).snapshot

    def findings(self, newest: Snapshot, *, is_end_named: bool) -> list[Finding]:
        proof = Proof(self._store, self._history, self._listing, newest)
        found = [*self._beyond(newest, is_end_named)]
        try:
            proof.check_whole()
            found += self._checkpoints(proof)
        except DataError as error:
            found.append(Finding("_log/", str(error), False))
        return found

    def _beyond(self, newest: Snapshot, is_end_named: bool) -> Iterator[Finding]:
        """Yields what lies after the end of the log."""
        end, table_id = newest.version, newest.table_id
        for number in self._listing.beyond(end):
            key = version_key(number)
            try:
                # Without a first version, the first file tells which table this is.
                table_id = table_id or self._table_of(number)
                held = self._history.own(number, table_id)
                damage = self._damage(number, table_id)
            except StoreUnreachableError:
                raise
            except StoreError as error:
                yield Finding(key, f"{_REFUSED} ({error})", False)
                continue
            if held > end:
                self._own_beyond = max(self._own_beyond, held)
            if damage is None:
                reason = f"a version of this table, but version {end + 1} is missing"
                yield Finding(key, reason, is_end_named)
            elif number == end + 1:
                reason = f"version {number} may have been here: {damage}"
                yield Finding(key, reason, is_end_named)
            elif held > end:
                reason = f"version {held} of this table, though version {number} belongs here"
                if held == end + 1:
                    reason += f": move it to {version_key(held)}"
                yield Finding(key, reason, is_end_named)
            else:
                yield Finding(key, "not a version of this table, beyond the end of its log", True)

    def _table_of(self, number: int) -> str:
        """Returns the table of a log file, by its content; nothing if it can't be read."""
        try:
            return self._history.read_any(number).table_id
        except (DataError, ObjectNotFoundError):
            return ""

    def _damage(self, number: int, table_id: str) -> str | None:
        """Returns why a log file is not this version of the table; None if it is."""
        try:
            self._history.read(number, table_id)
        except (DataError, ObjectNotFoundError) as error:
            return str(error)
        return None

    def lost(self, newest: Snapshot) -> Iterator[Finding]:
        """Yields the version that is proven to be lost after the end of the log."""
        lost = lost_version(self._store, self._history, newest)
        if lost is not None:
            yield Finding(version_key(lost.number), lost.reason, False)

    def last_known(self, end: int) -> int:
        """Returns the last version after the end of the log that left a trace; 0 if none did."""
        based_on = last_base(self._store, end)
        return max(self._own_beyond, based_on.number if based_on else 0)

    def _checkpoints(self, proof: Proof) -> Iterator[Finding]:
        readable: set[int] = set()
        """Holds versions only: a checkpoint holds the whole table, and is read again when its turn comes."""
        floor = self._listing.marks.floor
        for version in self._listing.marks.checkpoints:
            if version >= floor:
                try:
                    proof.checkpoint(version)
                    readable.add(version)
                except ObjectNotFoundError:
                    continue  # it has gone with the log before it
                except DataError as error:
                    if isinstance(error.__cause__, StoreError):
                        yield Finding(checkpoint_key(version), f"{_REFUSED} ({error})", False)
                        continue
                    # If the log's first checkpoint is damaged, the log has to begin with a newer one.
                    goes_aside = version != floor or bool(readable)
                    self.new_floor = min(readable) if version == floor and readable else 0
                    yield self._checkpoint(version, str(error), goes_aside)
        if floor and not readable:
            return  # there is nothing to begin with
        start = self._history.checkpoint(self.new_floor) if self.new_floor else None
        for rebuilt in proof.rebuilt(list(readable), start=start):
            if rebuilt.version in readable:
                try:
                    proof.check_checkpoint(self._history.checkpoint(rebuilt.version), rebuilt)
                except ObjectNotFoundError:
                    continue
                except DataError as error:
                    yield self._checkpoint(rebuilt.version, str(error), True)

    def _checkpoint(self, version: int, message: str, goes_aside: bool) -> Finding:
        key = checkpoint_key(version)
        return Finding(key, message.removeprefix(f"{self._store.url}/{key}: "), goes_aside)


def _meaning(history: History) -> tuple[Snapshot | None, Meaning]:
    try:
        snapshot = history.newest(Snapshot.empty()).snapshot
    except StoreUnreachableError:
        raise
    except (DataError, StoreError) as error:
        return None, Meaning(error=str(error))
    return snapshot, Meaning(snapshot.version, len(snapshot.fragments), snapshot.live_rows)


class _Without:
    """A store as if some objects were missing, and some empty ones were there."""

    def __init__(self, store: ReadOnlyStore, hidden: set[str], added: Sequence[str] = ()) -> None:
        self._store = store
        self._hidden = hidden
        self._added = added

    @property
    def url(self) -> str:
        return self._store.url

    def read(self, key: str) -> bytes:
        if key in self._hidden:
            raise ObjectNotFoundError(f"{self.url}/{key}: no such object")
        return self._store.read(key)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectInfo]:
        for info in self._store.list(prefix, start_after=start_after):
            if info.key not in self._hidden:
                yield info
        yield from (ObjectInfo(key, 0, "", 0.0) for key in self._added if key.startswith(prefix))


def _put_aside(store: Store, key: str, target: str) -> None:
    """Copies an object of any size, and removes the original if the copy has the same length."""
    source = store.open_stream(key)
    try:
        with store.start_upload(target) as upload:
            while piece := source.read(_COPY_BYTES):
                upload.write(piece)
            written = upload.complete()
    finally:
        source.close()
    if written.size_bytes != source.size_bytes:
        raise CompactorError(f"{store.url}/{target}: the copy and the object differ in length")
    store.delete(key)
