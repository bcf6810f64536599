"""Reads Parquet, Arrow IPC and fragments with their own types, regardless of the table's schema."""

from __future__ import annotations

import contextlib
import itertools
import mmap
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as pt

from compactor.common.counts import counted
from compactor.common.ipc import READING
from compactor.common.shortage import no_thread
from compactor.errors import InputError
from compactor.files.column_names import check_names
from compactor.files.foreign_types import naming_foreign_types, refuse_dropped_types
from compactor.files.int96 import Int96Units, Unit, int96_leaves, look_at_group, with_signs
from compactor.files.kept_types import (
    NOTE_KEY,
    is_in_seconds,
    noted_schema,
    with_kept_types,
    with_recorded_types,
)
from compactor.files.parquet_codes import Sizes, agrees, coded_columns
from compactor.files.places import place_of
from compactor.files.problems import PROBLEMS, one_line, reading
from compactor.files.sortedness import recorded_sort_schema, sort_of_parquet
from compactor.files.source import FileBatches, Wanted, wanted_names
from lsm_fragment.arrays.canonical import canonical
from lsm_fragment.arrays.cast import as_schema
from lsm_fragment.arrays.types import contains, table_schema
from lsm_fragment.arrays.validity import ValueCheck, check_whole
from lsm_fragment.keys.sort_schema import ordering

_READ_BYTES: Final = 1 << 20
_BATCHES_AHEAD: Final = 1
_COUNTED_ROWS: Final = 4_096
"""Batch size for locating the damaged column of a row group."""
_IPC_FILE_MAGIC: Final = b"ARROW1"
_IPC_STREAM_START: Final = b"\xff\xff\xff\xff"
_IPC_STREAM_END: Final = bytes(4)
"""End of a stream, preceded by `_IPC_STREAM_START` (absent before Arrow 0.15)."""
_OLD_PREFIX_BYTES: Final = 4
"""Size of the schema message's length field at the start of an old stream."""


class ParquetBatches(FileBatches):
    """An open Parquet file, decoded `batch_bytes` at a time; see `compactor.files.read.open_table_file`."""

    is_checked = True

    def __init__(
        self,
        path: str,
        batch_bytes: int,
        columns: Wanted = None,
        *,
        max_codes: int = 0,
        threads: int = 1,
    ) -> None:
        """max_codes: returns strings and binaries as codes, which `schema` does not show, where their
        dictionaries have no more values than this."""
        super().__init__(path, place_of(path), batch_bytes, threads)
        with reading(path):
            with naming_foreign_types(path):
                self._file = _opened(path)
            check_names(self._file.schema_arrow, path)
            self.sort = sort_of_parquet(self._file.metadata, self._file.schema_arrow)
            read, said = self._file.schema_arrow, self._file.metadata.metadata or {}
            kept = _types_kept(_ExactSchema(read), said.get(NOTE_KEY))
        self.schema = _plain_schema(path, kept)
        self._columns = read_columns(self.schema, columns)
        if self._columns is not None:
            self.schema = _only(self.schema, columns)
        with reading(path):
            refuse_dropped_types(path, self._file.schema, _only(read, self.schema.names))
        self._rows_read = 0
        self._groups: Sequence[int] = range(self._file.metadata.num_row_groups)
        self._check_rows()
        with reading(path):
            self._exact = self._with_units()
        self._sizes: list[Sizes] = []
        self._coded = self._file
        if max_codes:
            with reading(path):
                self._open_coded(max_codes)

    def _with_units(self) -> _ExactTimes | None:
        """Finds the units of INT96 timestamps. Returns the reader of columns for which Arrow's microseconds
        fail.

        Raises `InputError` if no unit holds all values of a column, and for unreadable row groups.
        """
        metadata = self._file.metadata
        if not int96_leaves(metadata):
            return None
        units = Int96Units(self.path, metadata)
        seconds, nanoseconds = (_opened(self.path, unit, metadata=metadata) for unit in ("s", "ns"))
        files = (seconds, nanoseconds)
        for index in range(metadata.num_row_groups):
            with self._reading_group(index):
                look_at_group(units, files, index, self._rows_at_a_time(index))
        read = set(self.schema.names)
        fine = [name for name in sorted(units.in_nanoseconds) if name in read]
        signed = [name for name in sorted(units.signed) if name in read]
        own = table_schema(pa.schema([nanoseconds.schema_arrow.field(name) for name in fine]))
        exact = {field.name: field for field in own}
        self.schema = pa.schema(
            [exact.get(field.name, field) for field in self.schema], self.schema.metadata
        )
        times = _ExactTimes(seconds, nanoseconds, fine, signed)
        if times.names:
            return times
        times.close()
        return None

    def _rows_at_a_time(self, index: int) -> int:
        group = self._file.metadata.row_group(index)
        parts: int = max(1, -(-group.total_byte_size // self._batch_bytes))
        return max(1, -(-int(group.num_rows) // parts))

    def _open_coded(self, max_codes: int) -> None:
        """Opens the file a second time, to read columns as codes."""
        own = self._file.schema_arrow
        names = {f.name for f in self.schema if f.type == own.field(f.name).type}
        sizes = coded_columns(self.path, self._file, names, max_codes)
        names = {name for group in sizes for name in group}
        if names:
            self._coded = _opened(self.path, metadata=self._file.metadata, read_dictionary=names)
            self._sizes = sizes

    def _check_rows(self) -> None:
        metadata = self._file.metadata
        groups = (metadata.row_group(index).num_rows for index in range(metadata.num_row_groups))
        if (rows := sum(groups)) != metadata.num_rows:
            raise InputError(
                f"{self.path}: its footer says {counted(metadata.num_rows, 'row')}, its row groups "
                f"{rows:,}: it is "
                "damaged; write the file again"
            )

    def read_only(self, groups: Sequence[int]) -> None:
        """Leaves all other row groups out, and numbers that the file does not have. Call it before the first
        batch. groups: numbers, ascending."""
        self._groups = [index for index in groups if index < self._file.metadata.num_row_groups]

    @property
    def bytes_consumed(self) -> int:
        rows = max(1, int(self._file.metadata.num_rows))
        return self.bytes_total * self._rows_read // rows

    def close(self) -> None:
        self._end_threads()
        self._file.close()
        self._coded.close()
        if self._exact is not None:
            self._exact.close()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        return self._ahead(self._decoded(), _BATCHES_AHEAD)

    def _decoded(self) -> Iterator[pa.RecordBatch]:
        metadata, check = self._file.metadata, ValueCheck()
        for index in self._groups:
            group, read = metadata.row_group(index), 0
            with self._reading_group(index):
                batches = self._coded_group(index, self._rows_at_a_time(index))
                if self._exact is not None:
                    batches = self._exact.replaced(batches, index, self._rows_at_a_time(index))
                for batch in batches:
                    read += batch.num_rows
                    # Parquet's reader does not validate text.
                    yield self._typed(canonical(batch, check.check))
            if read != group.num_rows:
                raise self._damaged(index, f"it has {read:,} of {counted(group.num_rows, 'row')}")
            self._rows_read += read

    @contextlib.contextmanager
    def _reading_group(self, index: int) -> Iterator[None]:
        """Turns errors in a row group's content into `InputError` with the column."""
        try:
            yield
        except InputError:
            raise
        except (OSError, *PROBLEMS) as error:
            if not _is_of_file(error):
                raise
            raise self._damaged(index, one_line(error), error) from error

    def _typed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Converts the rows to the schema, except codes."""
        fields = [
            field.with_type(dtype)
            if pt.is_dictionary(dtype) and dtype.value_type == field.type
            else field
            for field, dtype in zip(self.schema, batch.schema.types, strict=True)
        ]
        return as_schema(batch, pa.schema(fields, self.schema.metadata))

    def _coded_group(self, index: int, rows: int) -> Iterator[pa.RecordBatch]:
        """Yields a row group with some columns as codes, as long as their dictionaries are consistent."""
        if not self._sizes:
            yield from self._group(index, rows)
            return
        for number, batch in enumerate(_row_group(self._coded, index, rows, self._columns)):
            if not agrees(batch, self._sizes[index]):
                yield from itertools.islice(self._group(index, rows), number, None)
                return
            yield batch

    def _group(
        self, index: int, rows: int, columns: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        return _row_group(self._file, index, rows, columns or self._columns)

    def _damaged(self, index: int, cause: str, error: Exception | None = None) -> InputError:
        """Returns the error of a row group that is unreadable or whose columns have wrong lengths.

        Arrow's reader silently stops at the shortest column. error: of the reader.
        """
        rows = self._file.metadata.row_group(index).num_rows
        place, lacks_reader = "", isinstance(error, pa.ArrowNotImplementedError)
        for name in self.schema.names:
            try:
                found = sum(batch.num_rows for batch in self._group(index, _COUNTED_ROWS, [name]))
                lacks_reader = False
                own = f"it has {found:,} of {counted(rows, 'row')}" if found != rows else ""
            except (OSError, *PROBLEMS) as found_error:
                own = one_line(found_error) if _is_of_file(found_error) else ""
                lacks_reader = isinstance(found_error, pa.ArrowNotImplementedError)
            if own:
                place, cause = f", column {name!r}", own
                break
        if lacks_reader:
            return InputError(
                f"{self.path}, row group {index}{place}: Arrow lacks a reader for it ({cause}): write it "
                "again with another type, encoding or compression of the column, or without it"
            )
        return InputError(
            f"{self.path}, row group {index}{place}: cannot be read: {cause}: the file is damaged; write "
            "it again"
        )


class _ExactTimes(NamedTuple):
    """The INT96 columns that Arrow cannot read in microseconds."""

    seconds: pq.ParquetFile
    nanoseconds: pq.ParquetFile
    fine: list[str]
    """Columns in nanoseconds."""
    signed: list[str]
    """Columns with negative days, read in microseconds."""

    @property
    def names(self) -> list[str]:
        return [*self.fine, *self.signed]

    def replaced(
        self, batches: Iterator[pa.RecordBatch], index: int, rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Replaces these columns in the batches of a row group."""
        files = (self.seconds, self.nanoseconds)
        exact = (_row_group(file, index, rows, self.names) for file in files)
        for batch, whole, fine in zip(batches, *exact, strict=True):
            for name in self.names:
                place, column = batch.schema.get_field_index(name), fine.column(name)
                if name in self.signed:
                    dtype = batch.schema.field(place).type
                    column = with_signs(whole.column(name), column, dtype)
                batch = batch.set_column(place, pa.field(name, column.type), column)
            yield batch

    def close(self) -> None:
        self.seconds.close()
        self.nanoseconds.close()


class ArrowBatches(FileBatches):
    """An open Arrow IPC file; see `compactor.files.read.open_table_file`. Reads one batch of it at a time."""

    is_checked = True

    def __init__(
        self, path: str, batch_bytes: int, columns: Wanted = None, *, threads: int = 1
    ) -> None:
        super().__init__(path, place_of(path), batch_bytes, threads)
        with reading(path):
            self._source = pa.OSFile(path)
            with naming_foreign_types(path):
                self._reader = _ipc_reader(self._source, path)
            check_names(self._reader.schema, path)
        self._consumed = 0
        self.schema = _plain_schema(path, with_recorded_types(self._reader.schema))
        self.sort = recorded_sort_schema(self._reader.schema.metadata, self.schema.names)
        self.schema = _only(self.schema, columns)

    @property
    def bytes_consumed(self) -> int:
        return self._consumed

    def close(self) -> None:
        self._end_threads()
        self._source.close()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        return self._ahead(self._decoded(), _BATCHES_AHEAD)

    def _decoded(self) -> Iterator[pa.RecordBatch]:
        for batch, consumed in self._stored_batches():
            self._consumed = consumed
            # Arrow does not validate offsets; a damaged file must not crash the process.
            yield as_schema(canonical(batch.select(self.schema.names), check_whole), self.schema)
        self._consumed = self.bytes_total

    def _stored_batches(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yields batches, each with the file position after it."""
        if isinstance(self._reader, pa.ipc.RecordBatchFileReader):
            count = self._reader.num_record_batches
            for index in range(count):
                yield self._batch(index), self.bytes_total * (index + 1) // count
        else:
            for batch in self._reader:
                yield batch, int(self._source.tell())
            self._check_end(int(self._source.tell()))

    def _batch(self, index: int) -> pa.RecordBatch:
        try:
            return self._reader.get_batch(index)
        except pa.ArrowException as error:
            if not no_thread(error):
                raise
        self._reader = _file_in_memory(self.path)
        return self._reader.get_batch(index)

    def _check_end(self, end: int) -> None:
        """Raises `InputError` for a stream without its end mark, or with data after it.

        Arrow's reader accepts the end of the file instead of the mark, and ignores data after the mark.
        """
        self._source.seek(0)
        is_old = self._source.read(len(_IPC_STREAM_START)) != _IPC_STREAM_START
        mark = _IPC_STREAM_END if is_old else _IPC_STREAM_START + _IPC_STREAM_END
        self._source.seek(max(0, end - len(mark)))
        if self._source.read(len(mark)) != mark:
            raise InputError(
                f"{self.path}: has no end-of-stream mark: it may be cut off; write it again, and close "
                "its writer"
            )
        while rest := self._source.read(_READ_BYTES):
            if rest.strip(b"\0"):  # Zeros may be padding.
                raise InputError(
                    f"{self.path}: has more after its end-of-stream mark: if streams were joined, "
                    "ingest each as a file of its own"
                )


class FragmentBatches(FileBatches):
    """An open fragment; see `compactor.files.read.open_table_file`. Decodes one row group at a time."""

    is_checked = True

    def __init__(
        self, path: str, batch_bytes: int, columns: Wanted = None, *, threads: int = 1
    ) -> None:
        super().__init__(path, place_of(path), batch_bytes, threads)
        with reading(path):
            # Imported here, since few files are fragments.
            from lsm_fragment.container.open import open_fragment

            self._reader = open_fragment(path)
            self.schema = _only(_plain_schema(path, self._reader.schema), columns)
        self.sort = ordering(self._reader.footer.sort)
        self._rows_read = 0

    @property
    def bytes_consumed(self) -> int:
        rows = max(1, self._reader.footer.rows)
        return self.bytes_total * self._rows_read // rows

    def close(self) -> None:
        self._end_threads()
        self._reader.close()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        return self._ahead(self._decoded(), _BATCHES_AHEAD)

    def _decoded(self) -> Iterator[pa.RecordBatch]:
        for batch in self._reader.scan(self.schema.names):
            self._rows_read += batch.num_rows
            yield as_schema(batch, self.schema)


def read_columns(schema: pa.Schema, columns: Wanted) -> list[str] | None:
    """Returns the columns of a Parquet file that are read; None for all: Arrow takes a point in a name for a
    path."""
    if columns is None or any("." in name for name in schema.names):
        return None
    return wanted_names(schema.names, columns)


def _only(schema: pa.Schema, columns: Wanted) -> pa.Schema:
    if columns is None:
        return schema
    return pa.schema([schema.field(name) for name in wanted_names(schema.names, columns)])


def _opened(path: str, int96_unit: Unit = "us", **options: Any) -> pq.ParquetFile:
    return pq.ParquetFile(
        path,
        buffer_size=_READ_BYTES,
        # Pre-buffering would hold the compressed bytes of all requested row groups.
        pre_buffer=False,
        page_checksum_verification=True,
        coerce_int96_timestamp_unit=int96_unit,
        **options,
    )


def _row_group(
    file: pq.ParquetFile, index: int, rows: int, columns: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    batches = file.iter_batches(
        batch_size=rows,
        row_groups=[index],
        columns=columns,
        use_threads=pa.cpu_count() > 2,  # useless on one core
    )
    return iter(batches)


class _ExactSchema:
    """A schema as the key of a cache: equal to others with the same metadata."""

    __slots__ = ("schema",)

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def __hash__(self) -> int:
        return hash(tuple(self.schema.names))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ExactSchema) and bool(
            self.schema.equals(other.schema, check_metadata=True)
        )


@lru_cache(1)
def _types_kept(exact: _ExactSchema, said: bytes | None) -> pa.Schema:
    """Returns a file's schema with the Arrow types that its writer recorded and pyarrow ignores.

    Restores seconds only in our own files, since other programs read theirs as milliseconds. Keeps the last
    result: the files of one ingest mostly have the same schema.
    """
    read = exact.schema
    written = noted_schema(said)
    if written is None or written.names != read.names:
        return read  # Recorded types may be unusable, but the file is readable without them.
    types = {field.name: field.type for field in written if not contains(field.type, is_in_seconds)}
    return with_recorded_types(with_kept_types(read, types))


def _is_of_file(error: Exception) -> bool:
    """Returns whether an error is about the file's content, rather than memory or the system."""
    is_of_system = isinstance(error, OSError) and error.errno is not None
    return not (is_of_system or isinstance(error, MemoryError))


def _ipc_reader(source: Any, path: str) -> Any:
    start, size = source.read(len(_IPC_FILE_MAGIC)), source.size()
    source.seek(0)
    if start == _IPC_FILE_MAGIC:
        try:
            return pa.ipc.open_file(source, options=READING)
        except pa.ArrowException as error:
            if not no_thread(error):
                raise
        return _file_in_memory(path)
    schema_bytes = int.from_bytes(start[:_OLD_PREFIX_BYTES], "little")
    is_old = (
        _OLD_PREFIX_BYTES + schema_bytes <= size and (_OLD_PREFIX_BYTES + schema_bytes) % 8 == 0
    )
    if start.startswith(_IPC_STREAM_START) or is_old:
        return pa.ipc.open_stream(source, options=READING)
    raise ValueError("neither an Arrow IPC file nor an IPC stream")


def _file_in_memory(path: str) -> pa.ipc.RecordBatchFileReader:
    """Opens an IPC file as mapped memory, the only source that Arrow reads without its own thread."""
    with Path(path).open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return pa.ipc.open_file(pa.BufferReader(pa.py_buffer(mapped)), options=READING)


def _plain_schema(path: str, stored: pa.Schema) -> pa.Schema:
    """Returns the schema in a table's types. Raises `InputError` for duplicate names."""
    repeated = sorted(name for name, count in Counter(stored.names).items() if count > 1)
    if repeated:
        raise InputError(f"{path}: two columns are named {repeated[0]!r}: rename one of them")
    return table_schema(stored)
