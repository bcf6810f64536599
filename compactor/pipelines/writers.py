"""Writes the files of an output: a single one, or one per document, value, or number of rows. All are
published together once all outputs are written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from compactor.common.message import Message
from compactor.errors import CompactorError, DataError
from compactor.files.names import compression_of
from compactor.files.plain_text import plain_text
from compactor.files.write import StagedSink
from compactor.pipelines.config import Split
from compactor.pipelines.provenance import Boundary
from compactor.resources.reservation import Reservation
from lsm_fragment.arrays.moves import take
from lsm_fragment.arrays.storage import to_storage
from lsm_fragment.keys.normalised import same_as_previous, sort_keys
from lsm_fragment.keys.sort_schema import SortColumn
from lsm_fragment.threads import ThreadPool, Work

MAX_FILES: Final = 10_000
"""Maximum files per output."""
_NAME_BYTES: Final = 200
_UNSAFE: Final = re.compile(r"[%/\\\x00-\x1f\x7f]|^[._]")
OpenSink = Callable[[str], StagedSink]


class Writer(Protocol):
    """A writer of an output's rows and document boundaries, in order."""

    def boundary(self, boundary: Boundary, /) -> None: ...

    def write(self, batch: pa.RecordBatch, /) -> None: ...

    def finish(self) -> None:
        """Writes everything to disk under staging names."""

    def publish(self) -> None:
        """Moves everything to its place."""

    def close(self) -> None:
        """Removes unpublished files."""


class FileWriter:
    """A writer of a single file for all documents."""

    def __init__(self, path: str, open_sink: OpenSink) -> None:
        self._sink = open_sink(path)

    def boundary(self, _boundary: Boundary, /) -> None:
        return

    def write(self, batch: pa.RecordBatch, /) -> None:
        self._sink.write(batch)

    def finish(self) -> None:
        self._sink.finish()

    def publish(self) -> None:
        self._sink.publish()

    def close(self) -> None:
        self._sink.close()


class BesideWriter:
    """A writer whose batches a thread writes, one after the other, while the caller makes the next one.

    An error of writing is raised by the call after it.
    """

    def __init__(self, writer: Writer, memory: Reservation) -> None:
        """memory: is charged for the batch that is being written."""
        self._writer = writer
        self._memory = memory
        self._pool = ThreadPool(2)
        self._begun: Work[None] | None = None

    def boundary(self, boundary: Boundary, /) -> None:
        self.wait()
        self._writer.boundary(boundary)

    def write(self, batch: pa.RecordBatch, /) -> None:
        self.wait()
        self._memory.grow_beyond(batch.nbytes)
        self._begun = self._pool.begin(partial(self._writer.write, batch))

    def wait(self) -> None:
        """Waits until all batches are written. Raises the error of the last one."""
        begun, self._begun = self._begun, None
        if begun is not None:
            self._pool.wait(begun)
        self._memory.free()

    @contextmanager
    def errors_first(self) -> Iterator[None]:
        """Raises the error of writing rather than one of the batches after it."""
        try:
            yield
        except Exception:
            self.wait()
            raise

    def finish(self) -> None:
        self.wait()
        self._writer.finish()

    def publish(self) -> None:
        self._writer.publish()

    def close(self) -> None:
        self._pool.close()
        self._memory.free()
        self._writer.close()


class _Files:
    """A writer of several files, one open at a time."""

    def __init__(self, path: str, open_sink: OpenSink) -> None:
        self._path = path
        self._open_sink = open_sink
        self._open: StagedSink | None = None
        self._sinks: dict[str, StagedSink] = {}
        """By name."""

    def boundary(self, _boundary: Boundary, /) -> None:
        return

    def begin(self, name: str) -> None:
        """Opens a file of that name, numbered if the name is taken."""
        self.end()
        if len(self._sinks) == MAX_FILES:
            raise DataError(f"{self._path}: more than {MAX_FILES:,} files; split by something else")
        name = _file_name(name, self._path)
        tries = (f"{name}-{number}" for number in count(2))
        free = next(name for name in chain([name], tries) if name not in self._sinks)
        self._open = self._sinks[free] = self._open_sink(self._path_of(free))

    def add(self, batch: pa.RecordBatch) -> None:
        assert self._open is not None
        self._open.write(batch)

    def end(self) -> None:
        if self._open is not None:
            self._open.finish()
        self._open = None

    def finish(self) -> None:
        self.end()

    def publish(self) -> None:
        """Moves each file to its place. An error names those that are there already."""
        before: list[str] = []
        for name, sink in self._sinks.items():
            try:
                sink.publish()
            except CompactorError as error:
                if before:
                    places = " to ".join(dict.fromkeys((before[0], before[-1])))
                    count = f"{len(before):,} of its {len(self._sinks):,} files are"
                    error.args = (Message(error.message, f"; {count} in place: {places}"),)
                raise
            before.append(self._path_of(name))

    def close(self) -> None:
        for sink in self._sinks.values():
            sink.close()

    def _path_of(self, name: str) -> str:
        return self._path.replace("{}", name)


class DocumentWriter(_Files):
    """A writer of one file per document, even if it has no rows."""

    def boundary(self, boundary: Boundary, /) -> None:
        if boundary.is_open:
            self.begin(_stem(boundary.name))
        else:
            self.end()

    def write(self, batch: pa.RecordBatch, /) -> None:
        self.add(batch)


class RowsWriter(_Files):
    """A writer of files with `rows` rows each, numbered from 00000."""

    def __init__(self, path: str, open_sink: OpenSink, rows: int) -> None:
        super().__init__(path, open_sink)
        self._rows = rows
        self._left = 0

    def write(self, batch: pa.RecordBatch, /) -> None:
        while batch.num_rows:
            if not self._left:
                self.begin(f"{len(self._sinks):05d}")
                self._left = self._rows
            piece = batch.slice(0, self._left)
            self.add(piece)
            self._left -= piece.num_rows
            batch = batch.slice(piece.num_rows)


class ValueWriter(_Files):
    """A writer of one file per column value. Equal values must be adjacent."""

    def __init__(self, path: str, open_sink: OpenSink, column: str) -> None:
        super().__init__(path, open_sink)
        self._column = column
        self._last: str | None = None

    def write(self, batch: pa.RecordBatch, /) -> None:
        column = to_storage(batch.column(self._column))
        keys = sort_keys([column], (SortColumn("value"),))
        starts = np.flatnonzero(~same_as_previous(keys))
        names = plain_text(take(column, starts)).to_pylist()
        for start, stop, text in zip(starts, [*starts[1:], len(column)], names, strict=True):
            name = {None: "_null", "": "_empty"}.get(text) or _quoted(text)
            if name != self._last:
                self.begin(name)
                self._last = name
            self.add(batch.slice(int(start), int(stop - start)))


def writer_of(path: str, split: Split | None, open_sink: OpenSink) -> Writer:
    if split is None:
        return FileWriter(path, open_sink)
    if split.documents:
        return DocumentWriter(path, open_sink)
    if split.rows is not None:
        return RowsWriter(path, open_sink, split.rows)
    assert split.by is not None
    return ValueWriter(path, open_sink, split.by)


def _quoted(text: str) -> str:
    """Returns a value as a file name, percent-encoding characters that could change the folder."""
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _stem(name: str) -> str:
    """Returns the file name without its extensions for format and compression."""
    plain = name[: len(name) - len(compression_of(name).value)]
    return Path(plain).stem


def _file_name(name: str, path: str) -> str:
    if len(name.encode()) > _NAME_BYTES:
        raise DataError(
            f"{path}: {name[:40]!r}... is too long for a file's name; split by something else"
        )
    return name
