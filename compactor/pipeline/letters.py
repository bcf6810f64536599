"""Bad records: the first ends the run, or all are put aside with their source, row and reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from compactor.errors import DataError
from compactor.pipeline.provenance import ROW, SOURCE
from compactor.pipeline.report import RunReport

SCHEMA: Final = pa.schema(
    [("source", pa.string()), ("row", pa.int64()), ("node", pa.string()), ("reason", pa.string())]
)


class Letters:
    """sink: where they go; None if the first of them is an error."""

    def __init__(self, names: Sequence[str], report: RunReport, sink: Any | None) -> None:
        self._names = names
        self._report = report
        self._sink = sink

    def put_aside(self, batch: pa.RecordBatch, node: str, reason: str) -> None:
        """One row, with its hidden columns. Raises `DataError` if bad records are errors."""
        source = self._names[batch.column(SOURCE)[0].as_py()]
        row = batch.column(ROW)[0].as_py() + 1
        if self._sink is None:
            raise DataError(
                f"node {node!r}: row {row} of {source!r}: {reason}; no file was written "
                "(`on_error: continue` puts such rows aside)"
            )
        letter = {"source": source, "row": row, "node": node, "reason": reason}
        self._sink.write(pa.RecordBatch.from_pylist([letter], SCHEMA))
        self._report.dlq_count += 1
