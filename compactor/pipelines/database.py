"""The database that groups the rows of a run: DuckDB in memory, which is opened with the first query.

A query reads a stream of record batches and yields its result as another, so that nothing is held twice. All
queries share one memory limit, and a scratch folder for what does not fit.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from msgspec import Struct

from compactor.common.message import Message
from compactor.common.setting_keys import MEMORY_LIMIT_BYTES
from compactor.errors import JobError
from compactor.pipelines.batch_size import BatchSize
from compactor.pipelines.provenance import Batches
from compactor.resources.budget import MemoryBudget
from compactor.resources.disk import LocalDisk
from compactor.resources.errors import LocalDiskError, MemoryLimitError
from compactor.resources.packages import Extra, required
from compactor.resources.reservation import Reservation
from compactor.resources.scratch import ScratchFolder
from compactor.resources.stage import Buffer, MemoryStage
from lsm_fragment.arrays.batches import no_rows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

DATABASE: Final = "database"
"""The stage of the budget that holds the memory of queries."""
GIVEN: Final = "given"
"""The name of the rows that a query reads."""
_SHARE: Final = 2
"""Queries take half of the memory limit; the other half is for rows on their way to them, and for groups that
are being sorted."""
_MIN_BYTES: Final = 64 << 20
"""Below this, DuckDB cannot group a few million rows, because it pins blocks of every part on disk."""
_VECTOR_ROWS: Final = 2048
"""DuckDB works on as many rows at a time."""
_PREFIX: Final = "compactor-rows-"
_SETTINGS: Final[dict[str, Any]] = {
    "threads": 1,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
}
"""One thread, so that the rows, and the sums of floats, do not depend on the machine. It is the thread that
takes the result, so reading the input may charge the budget."""


def database_stage(limit_bytes: int) -> MemoryStage:
    """Returns the stage of a budget of this limit."""
    return MemoryStage(
        name=DATABASE,
        holds="rows of queries",
        buffer=Buffer.MATERIALIZED,
        memory_bytes=limit_bytes // _SHARE,
    )


class Rows(Struct, frozen=True):
    """The rows that a query reads, once."""

    schema: pa.Schema
    batches: Batches


class Database:
    """The database of one run or task. Only the thread that takes results may use it."""

    def __init__(self, budget: MemoryBudget, disk: LocalDisk) -> None:
        """budget: has the stage `DATABASE`. disk: names the folder for what does not fit into memory."""
        self._budget = budget
        self._disk = disk
        self._memory = Reservation(budget, DATABASE)
        self._connection: DuckDBPyConnection | None = None
        self._folder: ScratchFolder | None = None
        self._queries: list[_Query] = []
        self._failures: tuple[type[Exception], ...] = ()
        """What a query raises: DuckDB's errors, and Arrow's while its result is read."""
        self.spills = 0
        """Number of queries that wrote to local disk."""

    def query(self, node: str, sql: str, given: Rows, size: BatchSize) -> Batches:
        """Yields the result of a query that reads `GIVEN`, in batches of about this size.

        node: the node that asks, for errors. Raises `JobError`, and whatever reading the rows raises.
        """
        query = self._begun(given)
        try:
            yield from query.run(sql, size)
        except self._failures as error:
            raise query.error or self._explained(node, error) from None
        finally:
            self._end(query)

    def close(self) -> None:
        """Ends all queries, and removes the folder. Idempotent."""
        while self._queries:
            self._end(self._queries[-1])
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._folder is not None:
            self._folder.close()
            self._folder = None

    def _begun(self, given: Rows) -> _Query:
        connection = self._opened()
        if not self._queries:
            self._memory.grow(self._room())
            size = max(_MIN_BYTES, self._memory.size)
            connection.execute(f"SET memory_limit = '{size >> 10}KiB'")
        query = _Query(connection, given)
        self._queries.append(query)
        return query

    def _room(self) -> int:
        """Returns the bytes that queries may have: their share, or less if other stages cannot spill."""
        budget, size = self._budget, self._budget.limit_bytes // _SHARE
        if budget.make_room(size):
            return size
        return max(0, min(size, budget.soft_bytes - budget.used_bytes))

    def _end(self, query: _Query) -> None:
        if query not in self._queries:
            return
        assert self._folder is not None
        self.spills += self._folder.has_files()
        self._queries.remove(query)
        query.close()
        if not self._queries:
            self._memory.free()

    def _opened(self) -> DuckDBPyConnection:
        if self._connection is None:
            with required(Extra.PIPELINES, "grouping rows"):
                import duckdb

            self._failures = (duckdb.Error, OSError, pa.ArrowException)
            try:
                self._folder = ScratchFolder(_PREFIX, self._disk.directory)
            except OSError as error:
                raise LocalDiskError(
                    f"cannot make a folder in {self._disk.directory}: {error.strerror}"
                ) from error
            settings = {**_SETTINGS, "temp_directory": self._folder.path}
            self._connection = duckdb.connect(":memory:", config=settings)
        return self._connection

    def _explained(self, node: str, error: Exception) -> JobError:
        cause = str(error).splitlines()[0]
        if "temp_directory" in str(error) or "No space left" in cause:
            return LocalDiskError(
                f"node {node!r} cannot put rows aside in {self._disk.directory}: {cause}: make room there"
            )
        if "Out of Memory" in cause:
            return MemoryLimitError(
                Message(f"node {node!r} needs more than its part of the memory limit: raise ",
                        MEMORY_LIMIT_BYTES, f" ({cause})")
            )  # fmt: skip
        return JobError(f"node {node!r}: {cause}")


class _Query:
    """One query in a cursor of its own, so that it can be open beside others."""

    def __init__(self, connection: DuckDBPyConnection, given: Rows) -> None:
        self._connection = connection
        self._given = given
        self._rows: Generator[pa.RecordBatch] | None = None
        self.error: BaseException | None = None
        """What reading the rows has raised. DuckDB would pass on its text only."""

    def run(self, sql: str, size: BatchSize) -> Batches:
        self._rows = self._result(sql, size)
        return self._rows

    def close(self) -> None:
        """Ends the query. DuckDB complains of cursors that outlive it, so none is kept."""
        if self._rows is not None:
            self._rows.close()
            self._rows = None

    def _result(self, sql: str, size: BatchSize) -> Generator[pa.RecordBatch]:
        given = self._read()
        first = next(given, None)
        if first is None:
            first = no_rows(self._given.schema)
        # DuckDB knows no limit of bytes for its results; mostly their rows are as heavy as those it reads.
        rows = min(_VECTOR_ROWS, size.rows_of(first.nbytes / max(1, first.num_rows)))
        reader = pa.RecordBatchReader.from_batches(
            self._given.schema, itertools.chain([first], given)
        )
        del first
        with closing(self._connection.cursor()) as cursor, closing(reader):
            cursor.register(GIVEN, reader)
            with closing(cursor.sql(sql).to_arrow_reader(rows)) as result:
                for batch in size.joined(result):
                    yield from size.slices(batch)

    def _read(self) -> Batches:
        try:
            yield from self._given.batches
        except GeneratorExit:
            raise
        except BaseException as error:
            self.error = error
            raise
