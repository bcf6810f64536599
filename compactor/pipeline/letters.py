"""Bad records: the first ends the run, or all are put aside with their source, row and reason; with them all
that belongs to their groups."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compactor.errors import DataError
from compactor.pipeline.provenance import GROUP, ROW, SOURCE, Batches
from compactor.pipeline.report import RunReport, SeenRows

SCHEMA: Final = pa.schema(
    [("source", pa.string()), ("row", pa.int64()), ("node", pa.string()), ("reason", pa.string())]
)


class BadRecordError(DataError):
    """A row that a node can do nothing with, where such rows are errors."""

    def __init__(self, source: str, row: int, node: str, reason: str) -> None:
        """row: from 1 on."""
        self.source, self.row, self.node, self.reason = source, row, node, reason
        super().__init__(
            f"node {node!r}: row {row} of {source!r}: {reason}; no file was written "
            "(`on_error: continue` puts such rows aside)"
        )


class Letters:
    """sink: where they go; None if the first of them is an error. Several threads may put records aside."""

    def __init__(
        self,
        names: Sequence[str],
        report: RunReport,
        sink: Any | None,
        told: Collection[str] = (),
    ) -> None:
        """names: of the nodes, by their numbers. told: nodes that ran before, whose bad records are known."""
        self._told = frozenset(told)
        self._names = names
        self._report = report
        self._sink = sink
        self._lock = threading.Lock()
        self._failed: dict[str, str] = {}
        self._seen = SeenRows()

    def made(
        self, make: Callable[[pa.RecordBatch], pa.RecordBatch], batch: pa.RecordBatch, node: str
    ) -> Batches:
        """What becomes of a batch; rows for which `make` raises `pa.ArrowException` are put aside.

        Raises `DataError` if bad records are errors.
        """
        try:
            yield make(batch)
        except pa.ArrowException as error:
            if batch.num_rows > 1:
                half = batch.num_rows // 2
                yield from self.made(make, batch.slice(0, half), node)
                yield from self.made(make, batch.slice(half), node)
                return
            self.put_aside(batch, node, str(error).splitlines()[0])

    def put_aside(self, batch: pa.RecordBatch, node: str, reason: str) -> None:
        """One row, with its hidden columns. Raises `DataError` if bad records are errors."""
        source = self._names[batch.column(SOURCE)[0].as_py()]
        if GROUP in batch.schema.names and (group := batch.column(GROUP)[0].as_py()) is not None:
            self._failed.setdefault(group, f"another record of its group {group!r} is bad")
        self.put_bad(source, batch.column(ROW)[0].as_py(), node, reason)

    def put_bad(self, source: str, row: int, node: str, reason: str) -> None:
        """row: from 0. Raises `DataError` if bad records are errors."""
        if self._sink is None:
            raise BadRecordError(source, row + 1, node, reason)
        self._write([source], [row + 1], node, [reason])

    def fail_group(self, group: str, reason: str) -> None:
        """All of it will be put aside. Raises `DataError` if bad records are errors."""
        if self._sink is None:
            raise DataError(f"{reason}; no file was written")
        self._failed.setdefault(group, reason)

    def without_failed(self, batch: pa.RecordBatch, node: str) -> pa.RecordBatch:
        """The rows whose groups are well, or that have none; the others are put aside, each once."""
        if not self._failed:
            return batch
        failed = pa.array(list(self._failed), pa.string())
        place = pc.index_in(batch.column(GROUP), value_set=failed)
        bad = batch.filter(place.is_valid())
        if bad.num_rows:
            reasons = pa.array(list(self._failed.values()), pa.string())
            new = self._seen.new(bad)
            bad, place = bad.filter(pa.array(new)), place.drop_null().filter(pa.array(new))
            names = pa.array(self._names, pa.string()).take(bad.column(SOURCE))
            rows = pc.add(bad.column(ROW), 1)
            self._write(names, rows, node, reasons.take(place))
        return batch.filter(pc.index_in(batch.column(GROUP), value_set=failed).is_null())

    def _write(self, sources: Any, rows: Any, node: str, reasons: Any) -> None:
        assert self._sink is not None
        if node in self._told:
            return
        columns = [sources, rows, np.repeat(node, len(rows)), reasons]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
        with self._lock:
            self._sink.write(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
            self._report.dlq_count += len(rows)
