"""Splits sources into parts for parallel tasks: single files, or table fragments with disjoint keys."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from msgspec import Struct

from compactor.errors import ConfigError
from compactor.files.places import addresses_of
from compactor.pipelines.config import Source
from compactor.pipelines.nodes.source import (
    SourceReader,
    open_one_file,
    open_source,
)
from compactor.pipelines.work import Reading
from compactor.read.scan import scan
from compactor.read.scan_pieces import pieces_of
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from compactor.table.conditions import condition_on
from compactor.table.snapshot import Snapshot
from lsm_fragment.arrays.cast import as_schema


class SourcePart(Struct, frozen=True):
    """The part of a source that one task reads. Parts are in row order. Picklable."""

    node: str
    source: Source
    place: str
    """Absolute path of a file, or address of a table."""
    snapshot: Snapshot | None = None
    """The table's snapshot, reduced to this part's fragments; None for a file."""

    def open(self, schema: pa.Schema, how: Reading) -> SourceReader:
        """Opens the part. schema: schema of the whole source. Raises `InputError`."""
        if self.snapshot is None:
            return open_one_file(self.place, self.source, schema, how)
        store, snapshot = open_store(self.place), self.snapshot
        text = self.source.where
        where = None if text is None else condition_on(snapshot.table, text)
        columns = self.source.columns
        return SourceReader(
            schema, lambda: (as_schema(b, schema) for b in scan(store, snapshot, columns, where))
        )


class SourceParts:
    """Opens sources for their schemas, as a local run does, and records their parts."""

    def __init__(self) -> None:
        self.of: dict[str, list[SourcePart]] = {}
        self.schemas: dict[str, pa.Schema] = {}

    def open_source(self, name: str, source: Source, how: Reading, /) -> SourceReader:
        reader = open_source(name, source, how)
        self.schemas[name] = reader.schema
        if reader.is_stream:
            raise ConfigError(
                f"node {name!r}: {source.path} can be read only once, but tasks may read again: save "
                "it as a file, or run without --master"
            )
        if source.path is not None:
            self.of[name] = [
                SourcePart(name, source, path if addresses_of(path) else str(Path(path).absolute()))
                for path in reader.paths
            ]
        elif source.table is not None:
            self.of[name] = self._of_table(name, source, source.table)
        return reader

    def _of_table(self, name: str, source: Source, table: str) -> list[SourcePart]:
        store = open_store(table)
        snapshot = CommitLog(store).current()
        # The table may have gained columns since its schema was read.
        source = source.model_copy(update={"columns": tuple(self.schemas[name].names)})
        return [SourcePart(name, source, store.url, piece) for piece in pieces_of(snapshot)]
