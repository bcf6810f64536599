"""Brings a lake up to date with a table: plans, writes files, swaps them in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from msgspec.structs import replace

from compactor.errors import (
    CommitConflictError,
    DataError,
    ObjectNotFoundError,
    OvertakenError,
    UsageError,
    VersionNotFoundError,
)
from compactor.lakes.file import write_piece
from compactor.lakes.lake import Lake, LakeChangedError, LakeFile, LakeState, Swap
from compactor.lakes.lineage import lineage_of
from compactor.lakes.pieces import (
    Piece,
    file_name,
    node_of,
    node_of_piece,
    parsed_name,
    piece_of,
    pieces_of,
)
from compactor.lakes.plan import Difference, Rewrite, difference, rewrites_of
from compactor.lakes.publish_report import PublishReport
from compactor.read.changes import versions_between
from compactor.stores.base import Store
from compactor.table.commit_log import CommitLog
from compactor.table.entry import FragmentEntry
from compactor.table.snapshot import Snapshot
from lsm_fragment.errors import FormatError
from lsm_fragment.version import __version__

_TRIES: Final = 10
_WRITER: Final = f"{__version__} {pa.__version__}"


class Publisher:
    """Keeps one lake up to date with one table."""

    def __init__(
        self,
        log: CommitLog,
        target: Store,
        lake: Lake,
        *,
        min_level: int = 0,
        threads: int = 1,
        on_progress: Callable[[int, int], None] = lambda _rows, _all: None,
    ) -> None:
        """target: holds the files of the lake. min_level: leaves fragments of lower levels out.
        on_progress: called with the number of rows written so far, and of those to be written."""
        self._log = log
        self._target = target
        self._lake = lake
        self._min_level = min_level
        self._threads = threads
        self._on_progress = on_progress
        self._rows = self._rows_to_write = 0

    def publish(self) -> PublishReport:
        """Publishes the newest version. Starts again if another publisher commits first.

        Raises what `Lake.state` and `write_piece` raise, `TableNotFoundError` without a table, and
        `CommitConflictError` if others keep winning.
        """
        for _ in range(_TRIES):
            try:
                return self._try()
            except LakeChangedError:
                continue
        raise CommitConflictError(
            f"{self._target.url}: other publishers committed first {_TRIES} times: let one process publish "
            "here"
        )

    def _try(self) -> PublishReport:
        state = self._lake.state()
        snapshot = self._log.current()
        schema = self._lake.types(snapshot.table.shown_schema)
        if state is None:
            self._lake.create(schema)
            state = self._seen()
        schema = self._lake.arranged(state, schema)
        self._check(state, snapshot)
        pieces = list(
            pieces_of(
                snapshot,
                schema,
                min_level=self._min_level,
                fills_columns=self._lake.fills_columns,
            )
        )
        live = list(state.files.values())
        if only_adds_columns(state.schema, schema):
            change = difference(live, pieces, self._sizes())
            rewrites = self._rewrites(state, snapshot, schema, change)
        else:  # Readers take types from the lake, so no file may have others.
            change, rewrites = Difference([], live, pieces), []
        name_by = partial(file_name, base=state.version, writer=_WRITER)
        of_files = self._lake.file_schema(state, schema)

        def write(piece: Piece) -> LakeFile:
            before = self._rows
            file = write_piece(
                self._log.store,
                snapshot,
                piece,
                self._target,
                self._lake.folder + name_by(piece),
                of_files,
                threads=self._threads,
                on_rows=self._count,
            )
            # Fewer rows are written if some are merged, or if a run that was killed has written the file.
            self._rows_to_write -= piece.live_rows - (self._rows - before)
            self._count(0)
            return file

        self._rows, self._rows_to_write = 0, sum(piece.live_rows for piece in change.adds)
        files = {piece.id: write(piece) for piece in change.adds}
        # Rows that a policy merges may all be deleted. Iceberg's readers don't list files without rows.
        written = {piece: file for piece, file in files.items() if file.rows}
        data, same = _swaps(snapshot, schema, change, rewrites, written, write)
        state = self._commit(state, data, same)
        self._lake.tidy(state)
        return PublishReport(
            version=snapshot.version,
            files=len(state.files),
            rows=sum(file.rows for file in state.files.values()),
            added=len(written),
            removed=len(change.removes),
            bytes_added=sum(file.size_bytes for file in written.values()),
        )

    def _seen(self) -> LakeState:
        """Returns the newest version of the lake, which exists."""
        state = self._lake.state()
        if state is None:
            raise LakeChangedError
        return state

    def _sizes(self) -> dict[str, int]:
        """Lists the files that are there. Returns their bytes by name."""
        folder = self._lake.folder
        return {
            info.key.removeprefix(folder): info.size_bytes for info in self._target.list(folder)
        }

    def _check(self, state: LakeState, snapshot: Snapshot) -> None:
        """Raises `UsageError` for a lake that is not a copy of this table alone."""
        for name in state.files:
            if parsed_name(name) is None:
                raise UsageError(
                    f"{self._target.url}: another program has written {name} there, and publishing would "
                    "remove its rows: publish into an empty folder"
                )
        if state.table_version > snapshot.version:
            raise UsageError(
                f"{self._target.url}: has version {state.table_version} of the table, which is at version "
                f"{snapshot.version}: if its log was restored from a backup, publish into an empty folder"
            )

    def _rewrites(
        self, state: LakeState, snapshot: Snapshot, schema: pa.Schema, change: Difference
    ) -> list[Rewrite]:
        """Plans the commits that followers of the lake need not look at, if the log still tells them."""
        table = snapshot.table
        if not (self._lake.is_followed and state.table_version and change.removes and change.adds):
            return []
        if table.rows.merges and table.ttl is not None:
            return []  # What expires may change a merged row, which numbers of rows do not tell.
        try:
            since = self._log.at(state.table_version)
            if not since.table.stored_names.items() <= table.stored_names.items():
                return []  # A name that stands for another column changes rows.
            versions = list(versions_between(self._log, since, snapshot))
        except (VersionNotFoundError, OvertakenError):
            return []
        fills = self._lake.fills_columns
        merged = {}
        if table.rows.merges:
            before = pieces_of(
                replace(since, metadata=table),
                schema,
                min_level=self._min_level,
                fills_columns=fills,
            )
            merged = {piece.id: frozenset(map(node_of, piece.entries)) for piece in before}
        nodes_of = {
            file.piece: merged.get(file.piece, frozenset([node_of_piece(file.piece)]))
            for file in state.files.values()
        }
        lineage = lineage_of(since, versions, frozenset().union(*nodes_of.values()))

        def alone(entry: FragmentEntry) -> Piece:
            return piece_of((entry,), table, schema, fills_columns=fills)

        return rewrites_of(change, lineage, nodes_of, None if table.rows.merges else alone)

    def _count(self, rows: int) -> None:
        self._rows += rows
        self._on_progress(self._rows, max(self._rows, self._rows_to_write))

    def _commit(self, state: LakeState, *swaps: Swap) -> LakeState:
        """Commits the swaps that change something, each on top of the one before.

        The first that is committed brings the columns. None after it may: a change of columns can take all
        files away, and with them those that were just added.
        """
        base = state
        for swap in swaps:
            brings_columns = state is base and swap.schema != base.schema
            if not (swap.removes or swap.adds or brings_columns):
                continue
            expected = {*state.files, *(file.name for file in swap.adds)}
            expected.difference_update(file.name for file in swap.removes)
            self._lake.replace(state, swap)
            state = self._seen()
            if state.files.keys() != expected:
                raise LakeChangedError
        return state


def only_adds_columns(before: pa.Schema, after: pa.Schema) -> bool:
    """Returns whether a schema is another one with columns after it."""
    return list(after)[: len(before)] == list(before)


def _swaps(
    snapshot: Snapshot,
    schema: pa.Schema,
    change: Difference,
    rewrites: Sequence[Rewrite],
    written: Mapping[str, LakeFile],
    write: Callable[[Piece], LakeFile],
) -> tuple[Swap, Swap]:
    """Returns the commit that changes rows, and the one after it that does not.

    Readers see the rows of the version after either. written: the pieces that come, by id.
    """
    equal, arrived = [], list[LakeFile]()
    for part in rewrites:
        if _keeps_rows(part, written) and (files := _arrivals(part, write)) is not None:
            equal.append(part)
            arrived += files
    merged = [file for part in equal for file in part.removes]
    gone = {file.name for file in merged}
    come = {piece.id for part in equal for piece in part.adds}
    data = Swap(
        removes=[file for file in change.removes if file.name not in gone],
        adds=[*(file for piece, file in written.items() if piece not in come), *arrived],
        keeps_rows=False,
        schema=schema,
        table_version=None if equal else snapshot.version,
    )
    same = Swap(
        removes=[*merged, *arrived],
        adds=[file for piece, file in written.items() if piece in come],
        keeps_rows=True,
        schema=schema,
        table_version=snapshot.version,
    )
    return data, same


def _arrivals(rewrite: Rewrite, write: Callable[[Piece], LakeFile]) -> list[LakeFile] | None:
    """Writes what arrived since and is merged already. Returns its files; None if a fragment is lost or
    damaged by now: then all that changed is a change of rows."""
    try:
        written = [write(piece) for piece in rewrite.arrived if piece.live_rows]
    except (ObjectNotFoundError, OvertakenError, DataError, FormatError):
        return None
    return [file for file in written if file.rows]


def _keeps_rows(rewrite: Rewrite, written: Mapping[str, LakeFile]) -> bool:
    before = sum(file.rows for file in rewrite.removes)
    before += sum(piece.live_rows for piece in rewrite.arrived)
    return before == sum(written[p.id].rows for p in rewrite.adds if p.id in written)
