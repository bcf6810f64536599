"""Reads rows in memory, or from another library, as a stream of Arrow batches."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final

import pyarrow as pa

from compactor.errors import InputError
from compactor.files.column_names import check_names, check_texts
from compactor.files.problems import PROBLEMS, one_line
from compactor.files.sortedness import recorded_sort_schema
from compactor.files.source import FileBatches
from lsm_fragment.arrays.canonical import canonical
from lsm_fragment.arrays.validity import check_whole

NAME: Final = "appended rows"
"""Stands for the path in errors."""
_OF_PYTHON: Final = ". Detail: Python exception: "
"""Precedes the producer's traceback in errors of Arrow's C stream."""
_EXCEPTION: Final = re.compile(r"^(?:[\w.<>]*\.)?([A-Za-z_]\w*)(?:: (.*))?$", re.MULTILINE)
_OURS: Final = (
    "compactor.files.",
    "lsm_fragment.arrays.canonical",
    "lsm_fragment.arrays.dictionaries",
    "lsm_fragment.arrays.nested",
    "lsm_fragment.arrays.validity",
    "pyarrow.",
)
"""Modules that read and check a producer's rows. Other modules, such as a fragment's reader, may be
producers."""


class StreamBatches(FileBatches):
    """Rows of any object with Arrow's stream interface: tables, readers, data frames of Polars, pandas,
    DuckDB.

    PyArrow's own readers propagate the exception of a Python producer. Other streams propagate only its text,
    which becomes an `InputError`, or a `KeyboardInterrupt`. Unnamed index levels of pandas are omitted.
    """

    is_checked = True

    def __init__(self, rows: Any, batch_bytes: int) -> None:
        """Raises `InputError` for an object that is not a stream of rows."""
        self.path = NAME
        self._batch_bytes = batch_bytes
        self._reader = _reader(rows)
        schema = self._reader.schema
        self._unnamed = _unnamed_index(schema)
        self.schema = pa.schema([f for f in schema if f.name not in self._unnamed], schema.metadata)
        self.sort = recorded_sort_schema(schema.metadata, self.schema.names)

    def close(self) -> None:
        self._reader.close()

    def _reading(self) -> AbstractContextManager[None]:
        return _reading()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._reader:
            batch = canonical(batch, check_whole)  # the producer's data is not validated yet
            yield batch.drop_columns(list(self._unnamed)) if self._unnamed else batch


def _reader(rows: Any) -> pa.RecordBatchReader:
    if isinstance(rows, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
        check_names(rows.schema, NAME)
    if isinstance(rows, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(rows.schema, [rows])
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    if isinstance(rows, pa.Table):
        return (
            rows.to_reader()
        )  # Through the C interface, empty slices of views would not validate.
    if not hasattr(rows, "__arrow_c_stream__"):
        raise InputError(
            f"{NAME}: {type(rows).__name__} has no Arrow stream (__arrow_c_stream__): give a table, "
            "record batch or reader of Arrow (of a dataset: scanner().to_reader()), or a data frame (of a "
            "lazy one: collect())"
        )
    _check_objects(rows)
    # The C interface cuts a name at a NUL, so check the data frame's own names, if it has them.
    names = getattr(rows, "columns", ())
    check_texts([name for name in names if isinstance(name, str)], NAME)
    with _converting():
        return pa.RecordBatchReader.from_stream(rows)


def _check_objects(rows: Any) -> None:
    """Raises `InputError` for a column of Python objects in a data frame of Polars, whose stream has their
    addresses in memory as if they were bytes."""
    polars = sys.modules.get("polars")
    if polars is None or not isinstance(rows, polars.DataFrame):
        return
    for name, dtype in rows.schema.items():
        if dtype == polars.Object:
            raise InputError(
                f"{NAME}: column {name!r} has Python objects, which have no Arrow type: convert them, for "
                "instance to texts, or leave the column out"
            )


def _unnamed_index(schema: pa.Schema) -> frozenset[str]:
    """Returns the columns that are unnamed levels of a pandas index."""
    try:
        said = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
        unnamed = {c["field_name"] for c in said.get("columns", []) if c["name"] is None}
        levels = {name for name in said.get("index_columns", []) if isinstance(name, str)}
    except (ValueError, TypeError, KeyError, AttributeError):  # unusable metadata
        return frozenset()
    return frozenset(unnamed & levels & set(schema.names))


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Raises a producer's exception unchanged."""
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
            raise _producer_error(text) from error
        advice = "" if isinstance(error, OSError) else ": cast the column, or leave it out"
        raise InputError(f"{NAME}: cannot be read: {one_line(error)}{advice}") from error


def _is_of_producer(trace: TracebackType | None) -> bool:
    """Returns whether the error was raised by the producer: neither in PyArrow nor in our stream readers."""
    while trace is not None:
        frame = trace.tb_frame
        if not str(frame.f_globals.get("__name__", "")).startswith(_OURS):
            return True
        trace = trace.tb_next
    return False


def _producer_error(text: str) -> BaseException:
    """Returns an exception for a producer's error that crossed the C interface as text."""
    *_, trace = text.partition(_OF_PYTHON)[2].rpartition("Traceback (most recent call last):")
    found = _EXCEPTION.search(trace)
    kind, cause = found.groups() if found else ("an exception", None)
    if kind == "KeyboardInterrupt":
        return KeyboardInterrupt(cause or "")
    return InputError(f"{NAME}: their producer raised {kind}{f': {cause}' if cause else ''}")
