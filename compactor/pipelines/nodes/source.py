"""Reads the rows of files, each a document, or those of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import types as pt

from compactor.common.foreign import shown_path
from compactor.errors import ConfigError, DataError, InputError
from compactor.files.common_types import common_type
from compactor.files.jsontext import json_values
from compactor.files.layouts import kind_with
from compactor.files.places import (
    STANDARD_INPUT,
    STREAM,
    addresses_of,
    check_local,
    exists,
    matching_paths,
)
from compactor.files.plain_text import plain_text
from compactor.files.problems import UnknownColumnsError
from compactor.files.read import open_table_file
from compactor.files.source import BadRow, FileBatches, Places, none_good, wanted_names
from compactor.pipelines.binding import (
    WIDENED,
    WIDENED_TYPE,
    check_widened,
    common_schema,
    unknown_kind,
)
from compactor.pipelines.config import Source
from compactor.pipelines.provenance import (
    Batches,
    Boundary,
    boundary_batch,
    boundary_of,
    is_coded,
    one_document,
    placed,
)
from compactor.pipelines.work import AHEAD_BYTES, Reading, RunContext
from compactor.predicate.expressions.conversion import converted
from compactor.predicate.expressions.types import sql_type
from compactor.resources.reservation import Reservation
from lsm_fragment import compute as pc
from lsm_fragment.arrays.buffers import integer_array
from lsm_fragment.arrays.storage import plain, to_logical, to_storage
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.failing import failing_rows
from lsm_fragment.names import names_text
from lsm_fragment.value_errors import OF_VALUES, first_line

_MIN_GUESSED: Final = 4 << 20
"""Guess types from as many bytes of rows, or read the whole file for them. Each guess keeps its file open."""


class SourceReader:
    """An opened source: its schema, and a single read of its rows with document boundaries."""

    def __init__(
        self,
        schema: pa.Schema,
        batches: Callable[[], Batches],
        files: Sequence[FileBatches] = (),
    ) -> None:
        """files: to be settled and closed with the source."""
        self.schema = schema
        self.batches = batches
        self.files = files
        self.paths: Sequence[str] = ()
        """File paths; empty for a table."""
        self.is_stream = False
        """Whether a file can be read only once."""
        self.bad_rows: list[BadRow] = []
        """Rows skipped so far, and all bad rows of the document opened last, numbered within the source."""
        self.bad_keys: list[pa.Array] = []
        """Correlation keys of `bad_rows`, one array per document; empty without a correlation key."""
        self.begun: list[tuple[int, str]] = []
        """The number of the first row, and the path, of each file whose reading has begun."""

    def file_of(self, row: int) -> tuple[str, int] | None:
        """Returns the file of a row that was read, and the number of the file's first row in the source, from
        0; None for a table."""
        begun = [(path, first) for first, path in self.begun if first <= row]
        return begun[-1] if begun else None

    @property
    def reads_ahead(self) -> bool:
        """Whether threads read files ahead."""
        return any(file.threads > 1 for file in self.files)

    @property
    def is_guess(self) -> bool:
        return any(file.is_guess for file in self.files)

    def settle(self) -> bool:
        """Reads what is left of files whose types are guesses, which no thread may read any more. Returns
        whether they hold. Raises `InputError`."""
        hold = [file.settle() for file in self.files]
        return all(hold)

    def close(self) -> None:
        """Closes the files: no thread may read them any more. Idempotent."""
        for file in self.files:
            file.close()


class OpenSource(Protocol):
    def __call__(self, name: str, source: Source, how: Reading, /) -> SourceReader: ...


def open_source(
    name: str,
    source: Source,
    how: Reading,
    *,
    guesses: bool = False,
    settled: Sequence[FileBatches] = (),
) -> SourceReader:
    """Opens a source: files, after inferring their types, or the latest version of a table.

    guesses: infers the types from those rows alone; `SourceReader.settle` tells whether they hold.
    settled: the files of an equal source, of which some can be read once more.

    Raises `InputError` and `ConfigError`.
    """
    if source.table is not None:
        # Imported here, since files need no tables.
        from compactor.pipelines.nodes.table_source import TableScan

        table = TableScan(name, source.table, source)
        where = source.table
        return SourceReader(table.schema, lambda: one_document(where, table.rows(), table.schema))
    paths = _paths(source, f"node {name!r}")
    is_pattern = paths not in ([source.path], [STANDARD_INPUT])
    files: list[FileBatches] = []
    again = {file.path: file for file in settled if file.rewind()}
    held_bytes = how.held_bytes
    with ExitStack() as opened:
        for place, path in enumerate(paths):
            room = min(held_bytes, max(_MIN_GUESSED, held_bytes // (len(paths) - place)))
            file = again.get(path) or _opened(
                path,
                source,
                how._replace(held_bytes=room if guesses else held_bytes),
                may_be_empty=is_pattern,
                guesses=guesses and room >= _MIN_GUESSED,
            )
            files.append(opened.enter_context(file))
            held_bytes -= file.held_bytes
        schema = _schema_of(files, source, f"node {name!r}")
        opened.pop_all()
    # A thread may still wait for a stream when the run ends, and closing would wait too.
    closed = [file for file in files if not file.is_stream]
    reader = SourceReader(schema, lambda: _rows_of(files, reader, source.correlation_key), closed)
    reader.paths = paths
    reader.is_stream = any(file.is_stream for file in files)
    return reader


def open_one_file(path: str, source: Source, schema: pa.Schema, how: Reading) -> SourceReader:
    """Opens one file of a source with known columns."""
    file = _opened(path, source, how, may_be_empty=True)
    reader = SourceReader(schema, lambda: _rows_of([file], reader, source.correlation_key))
    return reader


def _opened(
    path: str,
    source: Source,
    how: Reading,
    *,
    may_be_empty: bool,
    guesses: bool = False,
) -> FileBatches:
    """Opens a file; text whose columns are all declared, or that is a stream, is read in one pass, later.

    The keys of bad rows of a file must be known before any row is written.
    """
    try:
        return open_table_file(
            path,
            _declared(source),
            options=source.text_options,
            layout=source.layout,
            ending=source.format,
            columns=source.used,
            in_one_pass=source.correlation_key is None,
            may_be_empty=may_be_empty,
            leaves_out_bad_rows=how.leaves_out_bad_rows,
            kept_column=source.correlation_key,
            held_bytes=how.held_bytes,
            threads=how.threads,
            # All of a file in a store would be fetched for its dictionaries.
            max_codes=how.max_codes if addresses_of(path) is None else 0,
            guesses=guesses and source.correlation_key is None,
            keeps_zones=True,
            takes_streams=True,
            text_holds_all=True,
        )
    except UnknownColumnsError as error:
        raise InputError(error.message, ", or declare the columns in `fields`") from None


def _paths(source: Source, what: str) -> list[str]:
    """Returns the files of a source. Raises `InputError` without one, `ConfigError` for an unknown kind."""
    assert source.path is not None
    paths = matching_paths(source.path)
    is_local = addresses_of(source.path) is None
    if is_local:
        check_local(source.path)
    if not paths or (is_local and not exists(paths[0])):
        if source.path == STREAM:
            raise InputError(f"{what}: standard input is closed: pipe rows into it, or name a file")
        shown = shown_path(source.path) if is_local else source.path
        raise InputError(f"{what}: {shown}: no such file: check the path")
    for path in paths:
        if is_local and Path(path).is_dir():
            some = f"{shown_path(path).rstrip('/')}/*.csv"
            raise InputError(
                f"{what}: {shown_path(path)}: is a folder: name its files by a pattern, such as {some}"
            )
        if kind_with(path, source.layout, source.format) is None:
            raise unknown_kind(path, what)
    return paths


def _declared(source: Source) -> pa.Schema | None:
    if source.fields is None:
        return None
    return pa.schema([(name, sql_type(dtype)) for name, dtype in source.fields.items()])


def _schema_of(files: Sequence[FileBatches], source: Source, what: str) -> pa.Schema:
    """Returns the columns of the first file, or the declared ones; other columns of files are widened."""
    declared = {field.name: field for field in _declared(source) or ()}
    everything: dict[str, pa.Field] = {}
    schemas = _typed(files)
    for field in chain.from_iterable(schemas):
        if field.name not in everything or pt.is_null(everything[field.name].type):
            everything[field.name] = field
    check_widened(everything, what)
    if not everything and not declared:
        if bad := [row for file in files for row in file.bad_rows]:
            raise InputError(
                f"{what}: {source.path}: the files have {none_good(bad)}, or declare the columns in `fields`"
            )
        raise InputError(
            f"{what}: {source.path}: the files are empty: name others, or give `fields`"
        )
    first: list[str] = next((file.schema.names for file in files if len(file.schema)), [])
    if source.only_fields:
        first = []
    first += [name for name in declared if name not in first]
    if source.columns is not None:
        for name in source.columns:
            if name not in everything and name not in declared:
                there = names_text(everything)
                raise ConfigError(f"{what}: {source.path} has no column {name!r}; it has: {there}")
        first = list(source.columns)
    elif source.used is not None:
        names = first if source.only_fields else dict.fromkeys([*first, *everything])
        first = wanted_names(list(names), source.used)
    known = everything | declared
    wanted = pa.schema([known[name] for name in first])
    wanted = common_schema(
        [file.path for file in files],
        _alike([_only(schema, wanted, declared) for schema in schemas]),
        what,
        "declare its type in `fields`",
    )
    is_whole = source.columns is None and source.used is None
    may_have_others = any(file.is_stream for file in files)
    if is_whole and (may_have_others or not set(everything) <= set(first)):
        wanted = wanted.append(pa.field(WIDENED, WIDENED_TYPE))
    return wanted


def _typed(files: Sequence[FileBatches]) -> list[pa.Schema]:
    """Returns the schemas of files. One without rows says nothing of the types that another tells."""
    told = {name for file in files if not file.is_untyped for name in file.schema.names}
    return [
        pa.schema([f.with_type(pa.null()) if f.name in told else f for f in file.schema])
        if file.is_untyped
        else file.schema
        for file in files
    ]


def _alike(schemas: Sequence[pa.Schema]) -> list[pa.Schema]:
    """Returns the schemas of one source's files, each column as the widest number or time that it is."""
    columns = []
    for fields in zip(*schemas, strict=True):
        wide = common_type([field.type for field in fields])
        columns.append(fields if wide is None else [field.with_type(wide) for field in fields])
    return list(map(pa.schema, zip(*columns, strict=True))) if columns else list(schemas)


def _only(schema: pa.Schema, wanted: pa.Schema, declared: Mapping[str, pa.Field]) -> pa.Schema:
    """Returns the wanted columns, with types from `schema` where it has them and they are not declared."""
    there = {field.name: field for field in schema}
    return pa.schema([f if f.name in declared else there.get(f.name, f) for f in wanted])


def _rows_of(files: Sequence[FileBatches], reader: SourceReader, key: str | None) -> Batches:
    """Yields each file as a document. key: the correlation key, noted for bad rows."""
    rows = 0
    for file in files:
        first = rows
        reader.begun.append((rows, file.path))
        noted = _Noted(file, reader, rows, key)
        noted.note()
        name = Path(file.path).name
        yield boundary_batch(Boundary(True, name), reader.schema)
        # A run that ends early reads the rest of a file whose types are guesses.
        with nullcontext() if file.is_guess else file:
            for batch in file:
                noted.note()
                number_of = partial(_number_of, file, rows - first)
                rows += batch.num_rows
                yield _as_declared(
                    _widened(batch, reader.schema), reader.schema, file.path, number_of
                )
        noted.note()
        rows += len(file.bad_rows)
        yield boundary_batch(Boundary(False, name), reader.schema)


def _number_of(file: FileBatches, good_before: int, row: int) -> int:
    """Returns the number in the file, from 0, of the good row `row` after as many others."""
    return int(Places([bad.ordinal for bad in file.bad_rows]).of(good_before + row, 1)[0])


class _Noted:
    """The bad rows of a file that its source knows of."""

    def __init__(
        self, file: FileBatches, reader: SourceReader, first: int, key: str | None
    ) -> None:
        """first: number of the file's first row within the source. key: the correlation key."""
        self._file = file
        self._reader = reader
        self._first = first
        self._key = key
        self._count = 0

    def note(self) -> None:
        """Adds those found since the last call."""
        new = self._file.bad_rows[self._count :]
        if self._key is not None and new:
            keys = _bad_keys(self._file, self._reader.schema.field(self._key))
            self._reader.bad_keys.append(keys[self._count :])
        self._count += len(new)
        self._reader.bad_rows += [BadRow(self._first + row.ordinal, row.reason) for row in new]


def _bad_keys(file: FileBatches, field: pa.Field) -> pa.Array:
    """Returns the keys of bad rows in the field's type."""
    own = file.schema.field(field.name) if field.name in file.schema.names else field
    kept = file.kept_of_bad_rows(own.type)
    return _column_as(kept, field, file.path, lambda row: file.bad_rows[row].ordinal)


def _widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Collects the columns unknown to the schema into a map column; a row's map has only its own fields."""
    if schema.get_field_index(WIDENED) < 0:
        return batch
    known = set(schema.names)
    names = [name for name in batch.schema.names if name not in known]
    columns = [batch.column(name) for name in names]
    has = np.zeros((batch.num_rows, len(names)), dtype=np.bool_)
    for place, column in enumerate(columns):
        has[:, place] = np.asarray(column.is_valid())
    rows, places = np.nonzero(has)
    texts = pa.chunked_array(
        [json_values(column, map_objects=True) for column in columns], pa.large_string()
    )
    values = texts.take(pa.array(places * batch.num_rows + rows)).combine_chunks().cast(pa.string())
    keys = pa.array(names, pa.string()).take(pa.array(places))
    offsets = np.concatenate([[0], np.cumsum(has.sum(axis=1))]).astype(np.int32)
    maps = pa.MapArray.from_arrays(pa.array(offsets), keys, values)
    return batch.append_column(WIDENED, maps)


def _as_declared(
    batch: pa.RecordBatch, schema: pa.Schema, path: str, number_of: Callable[[int], int]
) -> pa.RecordBatch:
    """Returns the schema's columns. Raises `DataError` for values that do not match the schema's types.

    number_of: returns the number in the file, from 0, of a row.
    """
    there = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns = [
        _column_as(there[field.name], field, path, number_of)
        if field.name in there
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _column_as(
    column: pa.Array, field: pa.Field, path: str, number_of: Callable[[int], int]
) -> pa.Array:
    if column.type == field.type or is_coded(column, field):
        return column
    stored = to_storage(column)

    def convert(start: int, stop: int) -> pa.Array:
        return converted(stored[start:stop], field.type)

    try:
        return convert(0, len(stored))
    except OF_VALUES as error:
        row, error = next(failing_rows(len(stored), convert, OF_VALUES), (None, error))
        where = path if row is None else f"{path}, row {number_of(row) + 1:,}"
        raise DataError(
            f"{where}: column {field.name!r} is {column.type}, and can't be read as {field.type} "
            f"({first_line(error)}): declare another type in `fields`"
        ) from None


def rows(work: RunContext, name: str, reader: SourceReader) -> Batches:
    """Yields batches of the pipeline's batch size with the hidden columns; sets bad rows aside."""
    with Reservation(work.budget, name) as ahead:
        if reader.reads_ahead:
            ahead.grow_beyond(AHEAD_BYTES)
        yield from _numbered(work, name, reader)


def _numbered(work: RunContext, name: str, reader: SourceReader) -> Batches:
    schema, full = work.schemas[name], work.full(work.schemas[name])
    node = work.nodes[name]
    assert isinstance(node, Source)
    number, row = work.numbers[name], 0
    places = Places()
    for given in reader.batches():
        if new := reader.bad_rows[places.left_out :]:
            bad = np.array([left_out.ordinal for left_out in new])
            groups = None
            if node.correlation_key is not None:
                keys = [
                    _decoded_column(k, schema.field(node.correlation_key)) for k in reader.bad_keys
                ]
                reader.bad_keys.clear()
                groups = pa.concat_arrays([_group_texts(k) for k in keys])
            reasons = [left_out.reason for left_out in new]
            work.dead_letters.put_bad(name, bad, reasons, groups)
            places = Places([left_out.ordinal for left_out in reader.bad_rows])
        work.report.records_read[name] = row + places.left_out
        if (boundary := boundary_of(given)) is not None:
            yield boundary_batch(boundary, full)
            continue
        whole = _decoded(given, reader.schema, schema)
        for piece in work.batch_size.slices(whole):
            numbers = integer_array(places.of(row, piece.num_rows))
            row += piece.num_rows
            work.report.records_read[name] = row + places.left_out
            yield placed(piece, number, numbers, _groups(work, node, piece))


def _groups(work: RunContext, node: Source, batch: pa.RecordBatch) -> pa.Array | None:
    if not work.has_groups:
        return None
    if node.correlation_key is None:
        return pa.nulls(batch.num_rows, pa.string())
    return _group_texts(batch.column(node.correlation_key))


def _group_texts(keys: pa.Array) -> pa.Array:
    plain_keys = to_storage(keys)
    if pt.is_floating(plain_keys.type):
        plain_keys = pc.add(plain_keys, pa.scalar(0.0, plain_keys.type))  # -0.0 is 0.0
    return pa.array(plain_text(plain_keys).cast(pa.string()))


def check_key(node: Source, schema: pa.Schema, what: str) -> pa.DataType | None:
    """Returns the correlation key's type, or None without one. Raises `ConfigError` if it is unusable."""
    if node.correlation_key is None:
        return None
    if node.correlation_key not in schema.names:
        there = names_text(schema.names)
        raise ConfigError(
            f"{what}: correlation_key: no column {node.correlation_key!r}; columns are: {there}"
        )
    dtype = storage_type(schema.field(node.correlation_key).type)
    if pt.is_nested(dtype):
        raise ConfigError(
            f"{what}: correlation_key: {node.correlation_key!r} is {dtype}: take a column of plain values"
        )
    return dtype


def _decoded(batch: pa.RecordBatch, given: pa.Schema, schema: pa.Schema) -> pa.RecordBatch:
    """Decodes the columns whose types in the files, `given`, are dictionaries. Codes that the reader chose
    itself stay."""
    columns, fields = [], []
    for column, own, field in zip(batch.columns, given, schema, strict=True):
        stays = is_coded(column, own) and is_coded(column, field)
        columns.append(column if stays else _decoded_column(column, field))
        fields.append(field.with_type(columns[-1].type))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _decoded_column(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    return to_logical(plain(to_storage(column)), field.type)
