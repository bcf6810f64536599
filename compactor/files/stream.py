"""Rows that are in memory already, or come from another library, as a stream of Arrow batches."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final

import pyarrow as pa

from compactor.errors import InputError
from compactor.files.column_names import check_names, check_texts
from compactor.files.problems import PROBLEMS, one_line
from compactor.files.sortedness import said_sort_schema
from compactor.files.source import FileBatches
from format.canonical import canonical
from format.validity import check_whole

NAME: Final = "appended rows"
"""Stands for a path in errors."""
_OF_PYTHON: Final = ". Detail: Python exception: "
"""Before the traceback of the producer, in what Arrow's C stream makes of its exception."""
_EXCEPTION: Final = re.compile(r"^(?:[\w.<>]*\.)?([A-Za-z_]\w*)(?:: (.*))?$", re.MULTILINE)
_OURS: Final = (
    "compactor.files.",
    "format.canonical",
    "format.dictionaries",
    "format.nested",
    "format.validity",
    "pyarrow.",
)
"""Modules that read and check what a producer gives; a fragment's reader may be the producer itself."""


class StreamBatches(FileBatches):
    """Anything with Arrow's stream interface: tables, readers, data frames of Polars, pandas, DuckDB.

    An exception of a producer in Python comes through as it is from PyArrow's own readers. Other streams
    hand on no more than its text: it becomes an `InputError` then, but for `KeyboardInterrupt`.
    Index levels of pandas that have no name are left out.
    """

    def __init__(self, rows: Any, batch_bytes: int) -> None:
        """Raises `InputError` for an object that is no stream of rows."""
        self.path = NAME
        self.bytes_total = 0
        self._batch_bytes = batch_bytes
        self._reader = _reader(rows)
        schema = self._reader.schema
        self._unnamed = _unnamed_index(schema)
        self.schema = pa.schema([f for f in schema if f.name not in self._unnamed], schema.metadata)
        self.sort = said_sort_schema(schema.metadata, self.schema.names)

    @property
    def bytes_consumed(self) -> int:
        return 0

    def close(self) -> None:
        self._reader.close()

    def _reading(self) -> AbstractContextManager[None]:
        return _reading()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._reader:
            batch = canonical(batch, check_whole)  # whoever made it, nobody else has looked
            yield batch.drop_columns(list(self._unnamed)) if self._unnamed else batch


def _reader(rows: Any) -> pa.RecordBatchReader:
    if isinstance(rows, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
        check_names(rows.schema, NAME)
    if isinstance(rows, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(rows.schema, [rows])
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    if isinstance(rows, pa.Table):
        return rows.to_reader()  # through C, empty slices of views would not validate any more
    if not hasattr(rows, "__arrow_c_stream__"):
        raise InputError(
            f"{NAME}: {type(rows).__name__} has no Arrow stream (__arrow_c_stream__): give a table, "
            "record batch or reader of Arrow (of a dataset: scanner().to_reader()), or a data frame (of a "
            "lazy one: collect())"
        )
    # In C a text ends where it has a NUL: data frames know their names in Python, too.
    names = getattr(rows, "columns", ())
    check_texts([name for name in names if isinstance(name, str)], NAME)
    with _converting():
        return pa.RecordBatchReader.from_stream(rows)


def _unnamed_index(schema: pa.Schema) -> frozenset[str]:
    """Columns that are levels of a pandas index without a name."""
    try:
        said = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
        unnamed = {c["field_name"] for c in said.get("columns", []) if c["name"] is None}
        levels = {name for name in said.get("index_columns", []) if isinstance(name, str)}
    except (ValueError, TypeError, KeyError, AttributeError):  # it is a remark of whoever made it
        return frozenset()
    return frozenset(unnamed & levels & set(schema.names))


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Lets the exception of a producer through."""
    try:
        with _converting():
            yield
    except InputError as error:
        cause = error.__cause__
        if cause is not None and _is_of_producer(cause.__traceback__):
            raise cause from cause.__cause__
        raise


@contextlib.contextmanager
def _converting() -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise
    except (OSError, *PROBLEMS) as error:
        text = str(error)
        if _OF_PYTHON in text:
            raise _told(text) from error
        advice = "" if isinstance(error, OSError) else ": cast the column, or leave it out"
        raise InputError(f"{NAME}: cannot be read: {one_line(error)}{advice}") from error


def _is_of_producer(trace: TracebackType | None) -> bool:
    """Whether it was raised in Python code that is neither PyArrow's nor about reading streams."""
    while trace is not None:
        frame = trace.tb_frame
        if not str(frame.f_globals.get("__name__", "")).startswith(_OURS):
            return True
        trace = trace.tb_next
    return False


def _told(text: str) -> BaseException:
    """What is left of a producer's exception that came through C as text."""
    *_, trace = text.partition(_OF_PYTHON)[2].rpartition("Traceback (most recent call last):")
    found = _EXCEPTION.search(trace)
    kind, cause = found.groups() if found else ("an exception", None)
    if kind == "KeyboardInterrupt":
        return KeyboardInterrupt(cause or "")
    return InputError(f"{NAME}: whoever gives them raised {kind}{f': {cause}' if cause else ''}")
