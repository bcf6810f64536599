"""Handles bad records: either the first one ends the run, or all go to the dead-letter file with source, row
and reason, together with the rest of their groups."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.errors import DataError
from compactor.files.sinks import TableSink
from compactor.files.write import open_table_sink
from compactor.pipelines.config import Pipeline
from compactor.pipelines.config.variables import Variables
from compactor.pipelines.located import at_setting
from compactor.pipelines.provenance import GROUP, ROW, SOURCE, Batches
from compactor.pipelines.run_report import RunReport, SeenRows
from lsm_fragment import compute as pc
from lsm_fragment.arrays.batches import keep_rows
from lsm_fragment.arrays.moves import keep
from lsm_fragment.failing import failing_rows
from lsm_fragment.value_errors import OF_VALUES, first_line

SCHEMA: Final = pa.schema(
    [("source", pa.string()), ("row", pa.int64()), ("node", pa.string()), ("reason", pa.string())]
)


class BadRecordError(DataError):
    """A node cannot process a row, and `on_error` is not `continue`."""

    def __init__(
        self, source: str, row: int, node: str, reason: str, file: tuple[str, int] | None = None
    ) -> None:
        """row: row number in the source, from 1. file: that of the row, and the number of its first row, from
        0."""
        self.source, self.row, self.node, self.reason = source, row, node, reason
        self.file = file
        super().__init__(
            f"node {node!r}: {_row_of(source, row, file)}: {reason}; no file was written "
            "(`on_error: continue` puts such rows aside)"
        )


def _row_of(source: str, row: int, file: tuple[str, int] | None) -> str:
    where = "" if file is None else f" ({_place_in(row, *file)})"
    return f"row {row} of {source!r}{where}"


def _place_in(row: int, path: str, first: int) -> str:
    return f"row {row - first} of {path}" if first else path


@contextmanager
def opened_dead_letters(pipeline: Pipeline) -> Iterator[Any | None]:
    """Opens the dead-letter file; yields None if bad records are errors."""
    if pipeline.on_error != "continue":
        yield None
        return
    assert pipeline.dead_letter is not None
    with ExitStack() as opened:
        with at_setting(pipeline, "dead_letter"):
            sink = opened.enter_context(open_table_sink(pipeline.dead_letter, SCHEMA))
        yield _Letters(sink, pipeline.variables)


class _Letters:
    """The dead-letter file. Its reasons show no value of the environment."""

    def __init__(self, sink: TableSink, variables: Variables) -> None:
        self._sink = sink
        self._variables = variables

    def write(self, batch: pa.RecordBatch) -> None:
        place = SCHEMA.get_field_index("reason")
        field, hide = SCHEMA.field(place), self._variables.hide
        reasons = pa.array(map(hide, batch.column(place).to_pylist()), field.type)
        self._sink.write(batch.set_column(place, field, reasons))


class DeadLetters:
    """A thread-safe collector of bad records."""

    def __init__(
        self,
        names: Sequence[str],
        report: RunReport,
        sink: Any | None,
        reported: Collection[str] = (),
        *,
        first_row: int = 0,
        file_of: Callable[[str, int], tuple[str, int] | None] | None = None,
    ) -> None:
        """names: nodes by number. sink: where dead letters go; None if bad records are errors. reported:
        nodes that an earlier phase ran, with its bad records already written. first_row: the number of row 0
        in batches. file_of: returns the file of a source's row, and the number of the file's first row."""
        self._file_of = file_of
        self._first_row = first_row
        self._reported = frozenset(reported)
        self._names = names
        self._report = report
        self._sink = sink
        self._lock = threading.Lock()
        self._failed: dict[str, str] = {}
        self._failed_arrays: tuple[pa.Array, ...] = (pa.nulls(0, pa.string()),) * 2
        self._seen = SeenRows()

    def made(
        self, make: Callable[[pa.RecordBatch], pa.RecordBatch], batch: pa.RecordBatch, node: str
    ) -> Batches:
        """Yields `make(batch)`; sets aside the rows that raise one of `OF_VALUES`.

        Raises `DataError` if bad records are errors.
        """
        try:
            yield make(batch)
        except OF_VALUES:
            failing = failing_rows(
                batch.num_rows,
                lambda start, stop: make(batch.slice(start, stop - start)),
                OF_VALUES,
            )
            if self._sink is None:
                failing = islice(failing, 1)
            bad = [(row, first_line(error)) for row, error in failing]
            is_good = np.ones(batch.num_rows, dtype=np.bool_)
            is_good[[row for row, _ in bad]] = False
            if bad:
                reasons = [reason for _, reason in bad]
                self._put_aside(keep_rows(batch, ~is_good), node, reasons)
            if is_good.any():
                yield from _in_parts(make, keep_rows(batch, is_good))

    def _put_aside(self, batch: pa.RecordBatch, node: str, reasons: Sequence[str]) -> None:
        """Sets aside at least one row. Raises `DataError` if bad records are errors.

        batch: the rows with their hidden columns. reasons: one per row.
        """
        if self._sink is None:
            source, row, file = self._origin(batch)
            raise BadRecordError(source, row, node, reasons[0], file)
        if GROUP in batch.schema.names:
            self._fail_groups_of_bad(batch.column(GROUP))
            self._new(batch)  # they may reach an output by another way, and have a reason already
        self._write(self._sources(batch), pc.add(batch.column(ROW), 1), node, reasons)

    def _origin(self, batch: pa.RecordBatch) -> tuple[str, int, tuple[str, int] | None]:
        """Returns source and row number, from 1, of the first row, and its file as `file_of` does."""
        source, row = self._names[batch.column(SOURCE)[0].as_py()], batch.column(ROW)[0].as_py()
        file = None if self._file_of is None else self._file_of(source, row)
        return source, row + 1, file

    def origin_of(self, batch: pa.RecordBatch) -> str:
        """Returns where the first row of a batch comes from, for errors."""
        return _row_of(*self._origin(batch))

    def put_bad(
        self,
        source: str,
        rows: npt.NDArray[np.int64],
        reasons: Sequence[str],
        groups: pa.Array | None = None,
    ) -> None:
        """Sets aside rows that a source skipped. Raises `DataError` if bad records are errors.

        rows: row numbers from 0, ascending, at least one. groups: groups of the rows, null if unknown.
        """
        if self._sink is None:
            raise BadRecordError(source, self._first_row + int(rows[0]) + 1, source, reasons[0])
        if groups is not None:
            self._fail_groups_of_bad(groups)
        self._write(np.repeat(source, len(rows)), self._first_row + rows + 1, source, reasons)

    def _fail_groups_of_bad(self, groups: pa.Array) -> None:
        for group in groups.drop_null().unique().to_pylist():
            self._failed.setdefault(group, f"another record of its group {group!r} is bad")

    def _sources(self, batch: pa.RecordBatch) -> pa.Array:
        return pa.array(self._names, pa.string()).take(batch.column(SOURCE))

    def fail_group(self, group: str, reason: str) -> None:
        """Marks a group to be set aside as a whole. Raises `DataError` if bad records are errors."""
        if self._sink is None:
            raise DataError(f"{reason}; no file was written")
        self._failed.setdefault(group, reason)

    def without_failed(self, batch: pa.RecordBatch, node: str) -> pa.RecordBatch:
        """Returns the rows of sound groups and of no group; sets the others aside, each once."""
        if not self._failed:
            return batch
        groups, reasons = self._failed_groups()
        place = pc.index_in(batch.column(GROUP), value_set=groups)
        bad = keep_rows(batch, place.is_valid())
        if bad.num_rows:
            new = self._new(bad)
            bad, why = keep_rows(bad, new), keep(place.drop_null(), new)
            rows = pc.add(bad.column(ROW), 1)
            self._write(self._sources(bad), rows, node, reasons.take(why))
        return keep_rows(batch, place.is_null())

    def _new(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Returns which rows of groups are set aside for the first time."""
        with self._lock:
            return self._seen.new(batch)

    def _failed_groups(self) -> tuple[pa.Array, ...]:
        """Returns the failed groups and their reasons, cached until another group fails."""
        if len(self._failed_arrays[0]) != len(self._failed):
            columns = (list(self._failed), list(self._failed.values()))
            self._failed_arrays = tuple(pa.array(column, pa.string()) for column in columns)
        return self._failed_arrays

    def _write(self, sources: Any, rows: Any, node: str, reasons: Any) -> None:
        assert self._sink is not None
        if node in self._reported:
            return
        columns = [sources, rows, np.repeat(node, len(rows)), reasons]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
        with self._lock:
            self._sink.write(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
            self._report.dlq_count += len(rows)


def _in_parts(make: Callable[[pa.RecordBatch], pa.RecordBatch], batch: pa.RecordBatch) -> Batches:
    """Processes good rows, halving the batch if the result overflows one array."""
    try:
        yield make(batch)
    except OF_VALUES:
        if batch.num_rows == 1:
            raise
        half = batch.num_rows // 2
        yield from _in_parts(make, batch.slice(0, half))
        yield from _in_parts(make, batch.slice(half))
