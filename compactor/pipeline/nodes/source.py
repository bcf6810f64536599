"""Rows of files, or of a table."""

from __future__ import annotations

import glob
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from compactor.errors import ConfigError, InputError
from compactor.files.read import open_table_file
from compactor.pipeline.binding import alike, fitted
from compactor.pipeline.config import Source
from compactor.pipeline.provenance import Batches, numbered
from compactor.pipeline.work import Work
from compactor.predicate import condition_on
from compactor.scan import scan, scan_schema
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from format.types import plain, to_logical, to_storage


class SourceReader:
    """One source: its schema, and its rows once."""

    def __init__(self, schema: pa.Schema, batches: Callable[[], Batches]) -> None:
        self.schema = schema
        self.batches = batches


OpenSource = Callable[[str, Source], SourceReader]


def open_source(name: str, source: Source) -> SourceReader:
    """Of a file, whose types are read first, or of a table's newest version."""
    if source.table is not None:
        store = open_store(source.table)
        snapshot = CommitLog(store).current()
        where = None if source.where is None else condition_on(snapshot.table, source.where)
        columns = source.columns
        return SourceReader(
            scan_schema(snapshot.table, columns), lambda: scan(store, snapshot, columns, where)
        )
    assert source.path is not None
    paths = _matching_paths(source.path)
    if not paths:
        raise InputError(f"node {name!r}: {source.path}: no such file")
    with ExitStack() as opened:
        # Text is read through for its types here, and for its rows later.
        files = [opened.enter_context(open_table_file(path)) for path in paths]
        schema = alike(paths, [file.schema for file in files], f"node {name!r}")
        for column in source.columns or ():
            if column not in schema.names:
                there = ", ".join(schema.names[:50])
                raise ConfigError(
                    f"node {name!r}: {source.path} has no column {column!r}; it has: {there}"
                )
        opened.pop_all()
    wanted = (
        schema if source.columns is None else pa.schema([schema.field(c) for c in source.columns])
    )

    def batches() -> Batches:
        for file in files:
            with file:
                for batch in file:
                    yield fitted(batch, wanted)

    return SourceReader(wanted, batches)


def rows(work: Work, name: str, reader: SourceReader) -> Batches:
    number, row = work.numbers[name], 0
    schema = work.schemas[name]
    for given in reader.batches():
        whole = _decoded(given, schema)
        for start in range(0, whole.num_rows, work.batch_rows):
            batch = numbered(whole.slice(start, work.batch_rows), number, row)
            row += batch.num_rows
            work.report.records_read[name] = row
            yield batch
    work.report.records_read.setdefault(name, 0)


def _decoded(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        c if c.type == f.type else to_logical(plain(to_storage(c)), f.type)
        for c, f in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _matching_paths(pattern: str) -> list[str]:
    """The file of that name; or those that match, by name."""
    if Path(pattern).exists() or not glob.has_magic(pattern):
        return [pattern]
    return sorted(glob.glob(pattern))  # noqa: PTH207 - Path.glob takes no absolute pattern
