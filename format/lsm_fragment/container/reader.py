"""Random access to a fragment by its footer, with projection and pruning by key range (SPEC section 8)."""

from __future__ import annotations

import bisect
import io
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Final, Protocol

import pyarrow as pa
from msgspec import Struct

from lsm_fragment.arrays.joining import batch_of
from lsm_fragment.arrays.sizes import rows_within
from lsm_fragment.arrays.storage import to_logical
from lsm_fragment.arrays.types import is_string, storage_type
from lsm_fragment.blocks import layout
from lsm_fragment.blocks.layout import BlockKind
from lsm_fragment.container.block import Block
from lsm_fragment.container.block_reader import BlockReader, MemorySource
from lsm_fragment.container.directory import Directory
from lsm_fragment.container.footer_reader import FooterReader
from lsm_fragment.container.header import FragmentHeader
from lsm_fragment.container.template_chunk import (
    TemplateChunk,
    TemplateSizes,
    has_templates,
    read_sizes,
)
from lsm_fragment.encodings.node import Encoding
from lsm_fragment.encodings.null import nulls
from lsm_fragment.errors import CorruptFragmentError, SchemaError
from lsm_fragment.keys.bounds import Bound
from lsm_fragment.keys.comparator import KeyComparator
from lsm_fragment.keys.normalised import KeyColumns
from lsm_fragment.names import names_text

_TAIL_BYTES: Final = 64 << 10
_HEAD_BYTES: Final = 16 << 10
_NODES_BYTES: Final = 4 << 10
"""Read this much of a TEMPLATE chunk for its encoding nodes, which are few, and its table of parts."""
_BEGIN_BYTES: Final = 64 << 10
_HEAD_DIVISOR: Final = 16
"""Read 1/16 of a chunk, but at least `_BEGIN_BYTES`, for its templates and codes: mostly enough."""
_READ_BYTES: Final = 16 << 20
_ROW_BYTES: Final = 8
_BATCH_BYTES: Final = 64 << 20
"""Limit a batch to this size per column: a short dictionary may decode to far more than it takes."""


class RangeSource(Protocol):
    """Byte ranges of one object. Returns exactly the requested bytes, fewer only at the end."""

    def read_range(self, start: int, length: int, /) -> bytes: ...


class KeyRange(Struct, frozen=True):
    """An inclusive range of keys; each bound has values of one or more leading sort columns.

    None means no limit. A shorter bound includes every key that begins with it.
    """

    lower: Bound | None = None
    upper: Bound | None = None


class FragmentReader:
    """Reads one fragment of `size_bytes` by ranges: first its end, then what is needed.

    The header is read only if the whole schema is needed.
    Implements Arrow's stream interface; each stream reads from the beginning, a few row groups at a time.
    It does not own its source; the reader of `open_fragment` does.
    Raises `NotAFragmentError`, `UnsupportedVersionError`, `CorruptFragmentError`.
    """

    def __init__(
        self, source: RangeSource, size_bytes: int, name: str, *, request_bytes: int = 0
    ) -> None:
        """request_bytes: the bytes that can be read in the time of one more request."""
        self._source = source
        self._request_bytes = request_bytes
        self.name = name
        self.size_bytes = size_bytes
        self._tail = b""
        """The end of the fragment from its first page of statistics on, as far as the first request had
        it."""
        self._tail_start = size_bytes
        self.footer = self._read_footer()

    @cached_property
    def _compare(self) -> KeyComparator:
        return KeyComparator(pa.schema(self.footer.key_fields), self.footer.sort)

    @cached_property
    def header(self) -> FragmentHeader:
        """The header, read on first use. Raises the errors of the constructor."""
        return self._read_header(self._source.read_range(0, min(self.size_bytes, _HEAD_BYTES)))

    @property
    def schema(self) -> pa.Schema:
        """The schema of all columns, from the header. `FooterReader.field` returns single fields without
        it."""
        return self.header.schema

    @property
    def row_groups(self) -> int:
        return len(self.footer.row_groups)

    def select_row_groups(self, keys: KeyRange) -> list[int]:
        """Returns the indices of the row groups that may hold rows of the range."""
        groups = self.footer.row_groups
        lower = None if keys.lower is None else self._compare.key(keys.lower)
        upper = None if keys.upper is None else self._compare.upper(keys.upper)
        return [
            index
            for index, group in enumerate(groups)
            if (lower is None or self._compare.upper(group.last_key) >= lower)
            and (upper is None or self._compare.key(group.first_key) <= upper)
        ]

    def read_storage(
        self, columns: Sequence[str], groups: Sequence[int], *, keep_templates: bool = False
    ) -> list[list[pa.Array]]:
        """Returns storage arrays [row group][column], with dictionaries kept.

        keep_templates: returns strings that are stored as templates as a templated array
        (`lsm_fragment.arrays.templated`); otherwise they are joined.
        Adjacent row groups take one range request per column.
        """
        self.footer.fetch(columns)
        by_column = [self._read_column(name, groups, keep_templates) for name in columns]
        return [list(arrays) for arrays in zip(*by_column, strict=True)] or [[] for _ in groups]

    def read_lazily(
        self, name: str, group: int, *, needs_text: bool = False
    ) -> pa.Array | TemplateChunk:
        """Returns a column of a row group as `read_storage` does, but leaves strings that are stored as
        templates undecoded.

        needs_text: read all of a chunk at once. Otherwise reads its beginning, unless the rest would take
        less time than a second request; the rest is read when text is needed.
        """
        self.footer.fetch([name])
        field = self.footer.field(name)
        if field is None or not self.footer.chunks(name):
            return self._read_column(name, [group], keep_templates=False)[0]
        dtype, stats = storage_type(field.type), self.footer.chunks(name)[group]
        if stats.encoding == Encoding.TEMPLATE.name and is_string(dtype):
            begin_bytes = max(_BEGIN_BYTES, stats.stored_bytes // _HEAD_DIVISOR)
            if needs_text or stats.stored_bytes - begin_bytes <= self._request_bytes:
                begin_bytes = stats.stored_bytes
            block = self._read_beginning(name, group, begin_bytes)
            if has_templates(block):
                return TemplateChunk(block, dtype, partial(self._read_payload, block))
        [block] = self.read_blocks(name, [group])
        return block.decode(dtype, keep_dictionary=True)

    def templated_groups(self, name: str) -> list[int]:
        """Returns the row groups that store strings as templates, from the footer; none for other columns."""
        self.footer.fetch([name])
        field = self.footer.field(name)
        if field is None or not is_string(storage_type(field.type)):
            return []
        chunks = enumerate(self.footer.chunks(name))
        return [group for group, chunk in chunks if chunk.encoding == Encoding.TEMPLATE.name]

    def template_sizes(self, name: str, group: int) -> TemplateSizes:
        """Returns sizes of a chunk's templates from its beginning. group: one of `templated_groups`.

        Raises `CorruptFragmentError`.
        """
        return read_sizes(self._read_beginning(name, group, _NODES_BYTES))

    def _read_beginning(self, name: str, group: int, begin_bytes: int) -> Block:
        """Reads up to `begin_bytes` of a chunk, and verifies only header and nodes."""
        stats = self.footer.chunks(name)[group]
        data = self._source.read_range(stats.offset, min(stats.stored_bytes, begin_bytes))
        reader = BlockReader(MemorySource(data), self.name, offset=stats.offset)
        block = reader.read_beginning(name)
        self._check_block(block, name, group, is_key=name in self.footer.key_names)
        return block

    def _read_payload(self, block: Block, start: int, length: int) -> bytes:
        """Reads bytes of a chunk's payload."""
        stop = block.offset + block.header.block_bytes
        data = self._source.read_range(stop - block.header.stored_bytes + start, length)
        if len(data) < length:
            raise block.fault(
                f"truncated: {length} bytes expected, the object ends after {len(data)}"
            )
        return data

    def scan(
        self, columns: Sequence[str] | None = None, keys: KeyRange | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a key range in sort order, with all or some columns.

        A row group is one batch, or several if a column takes more than 64 MiB decoded.

        Raises `SchemaError` for a missing column.
        """
        schema = self.project(columns)
        names = schema.names
        keys = keys or KeyRange()
        sort_names = [column.column for column in self.footer.sort]
        for read in self._reads(self.select_row_groups(keys), names):
            arrays = self.read_storage(names, read)
            key_arrays = self.read_storage(sort_names, read) if keys != KeyRange() else arrays
            for group, group_arrays, group_keys in zip(read, arrays, key_arrays, strict=True):
                start, stop = 0, self.footer.row_groups[group].rows
                if keys != KeyRange():
                    start, stop = self._slice_of(group_keys, keys)
                while start < stop:
                    rest = [array.slice(start, stop - start) for array in group_arrays]
                    end = min(stop, start + rows_within(rest, _BATCH_BYTES)) if rest else stop
                    yield from self._batches(schema, group_arrays, start, end)
                    start = end

    def to_reader(
        self, columns: Sequence[str] | None = None, keys: KeyRange | None = None
    ) -> pa.RecordBatchReader:
        """Returns the batches of `scan` as an Arrow stream. Raises `SchemaError` for columns immediately."""
        schema = self.project(columns)
        return pa.RecordBatchReader.from_batches(schema, self.scan(columns, keys))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Returns all rows as a stream, cast to the requested types where possible."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def project(self, names: Sequence[str] | None) -> pa.Schema:
        """Returns the schema of these columns, or of all columns with the schema's own metadata.

        Raises `SchemaError` for a missing column.
        """
        wanted = self.schema.names if names is None else names
        self.footer.fetch(wanted)
        fields = []
        for name in wanted:
            field = self.footer.field(name)
            if field is None and name in self.schema.names:
                raise CorruptFragmentError(
                    "the footer does not have a column of the header", name=self.name, column=name
                )
            if field is None:
                raise SchemaError(
                    f"{self.name}: no column {name!r}; columns are: "
                    + names_text(self.schema.names)
                )
            fields.append(field)
        schema = pa.schema(fields, metadata=self.schema.metadata if names is None else None)
        if names is None and not schema.equals(self.schema, check_metadata=True):
            raise CorruptFragmentError("header and footer differ in the schema", name=self.name)
        return schema

    def _batches(
        self, schema: pa.Schema, arrays: Sequence[pa.Array], start: int, stop: int
    ) -> Iterator[pa.RecordBatch]:
        """Yields one batch, or more if a row group has more distinct values than the index type of a
        dictionary column can count, as it may have after a merge."""
        try:
            batch = self._batch(schema, arrays, start, stop)
        except SchemaError:
            if stop - start == 1:
                raise
            middle = (start + stop) // 2
            yield from self._batches(schema, arrays, start, middle)
            yield from self._batches(schema, arrays, middle, stop)
        else:
            yield batch

    def _batch(
        self, schema: pa.Schema, arrays: Sequence[pa.Array], start: int, stop: int
    ) -> pa.RecordBatch:
        columns = [
            to_logical(array.slice(start, stop - start), field.type)
            for array, field in zip(arrays, schema, strict=True)
        ]
        return batch_of(columns, schema, stop - start)

    def _slice_of(self, keys: Sequence[pa.Array], wanted: KeyRange) -> tuple[int, int]:
        rows, columns = range(len(keys[0])), KeyColumns(keys, self._compare.layout)
        start, stop = 0, len(rows)
        if wanted.lower is not None:
            start = bisect.bisect_left(rows, self._compare.key(wanted.lower), key=columns.key)
        if wanted.upper is not None:
            stop = bisect.bisect_right(rows, self._compare.upper(wanted.upper), key=columns.key)
        return start, stop

    def _reads(self, groups: Sequence[int], names: Sequence[str]) -> Iterator[list[int]]:
        """Yields row groups to read together: adjacent ones with up to `_READ_BYTES` of chunks."""
        read: list[int] = []
        size = 0
        for group in groups:
            rows = self.footer.row_groups[group].rows
            # Constants take no bytes in the object, but some in memory.
            held = sum(
                max(chunks[group].held_bytes, _ROW_BYTES * rows)
                for chunks in map(self.footer.chunks, names)
                if chunks
            )
            if read and (size + held > _READ_BYTES or group != read[-1] + 1):
                yield read
                read, size = [], 0
            read.append(group)
            size += held
        if read:
            yield read

    def _read_column(
        self, name: str, groups: Sequence[int], keep_templates: bool
    ) -> list[pa.Array]:
        field = self.footer.field(name)
        if field is None:
            raise SchemaError(f"{self.name}: no column {name!r}")
        dtype = storage_type(field.type)
        if not self.footer.chunks(name):
            return [self._nulls(name, group, dtype) for group in groups]
        return [
            block.decode(dtype, keep_dictionary=True, keep_templates=keep_templates)
            for block in self.read_blocks(name, groups)
        ]

    def _nulls(self, name: str, group: int, dtype: pa.DataType) -> pa.Array:
        try:
            return nulls(self.footer.row_groups[group].rows, dtype)
        except ValueError as error:
            raise CorruptFragmentError(str(error), name=self.name, column=name) from error

    def read_blocks(self, name: str, groups: Sequence[int]) -> Iterator[Block]:
        """Yields the chunks of one column for these row groups, verified but still compressed."""
        chunks = self.footer.chunks(name)
        stats = [chunks[group] for group in groups]
        is_key = name in self.footer.key_names
        start = 0
        while start < len(stats):
            stop = start + 1
            while stop < len(stats) and stats[stop].offset == stats[stop - 1].end:
                stop += 1
            offset = stats[start].offset
            data = self._source.read_range(offset, stats[stop - 1].end - offset)
            reader = BlockReader(MemorySource(data), self.name, offset=offset)
            for group in groups[start:stop]:
                block = reader.read_block(name)
                self._check_block(block, name, group, is_key=is_key)
                yield block
            start = stop

    def _check_block(self, block: Block, name: str, group: int, *, is_key: bool) -> None:
        if block.header.kind is not (BlockKind.KEY if is_key else BlockKind.DATA):
            raise block.fault("the footer points at a block of another kind")
        if block.header.rows != self.footer.row_groups[group].rows:
            raise block.fault("the chunk's rows are not those of the footer")
        stats = self.footer.chunks(name)[group]
        lengths = block.offset, block.header.block_bytes, block.header.raw_bytes
        if lengths != (stats.offset, stats.stored_bytes, stats.raw_bytes):
            raise block.fault("the chunk's place and lengths are not those of the footer")

    def _read_header(self, head: bytes) -> FragmentHeader:
        layout.check_prologue(head[: layout.PROLOGUE_BYTES], name=self.name)
        start = layout.PROLOGUE_BYTES
        source = _PrefixedSource(self._source, head[start:], len(head))
        block = BlockReader(source, self.name, offset=start).read_block()
        if block.header.kind is not BlockKind.HEADER:
            raise block.fault("the fragment does not begin with its header")
        try:
            header = FragmentHeader.from_bytes(block.raw(), name=self.name)
            self.footer.check_header(header)
        except (SchemaError, ValueError) as error:
            raise block.fault(str(error)) from error
        return header

    def _read_footer(self) -> FooterReader:
        start = max(0, self.size_bytes - _TAIL_BYTES)
        tail = self._source.read_range(start, self.size_bytes - start)
        offset = self._directory_offset(tail)
        if offset < start:
            tail = self._source.read_range(offset, start - offset) + tail
            start = offset
        block = BlockReader(
            io.BytesIO(tail[offset - start :]), self.name, offset=offset
        ).read_block()
        if block.header.kind is not BlockKind.DIRECTORY:
            raise block.fault("the trailer does not point at the directory")
        try:
            directory = Directory.from_bytes(block.raw(), name=self.name)
            pages = directory.place(0, offset).offset if directory.head.pages else offset
        except ValueError as error:
            raise block.fault(str(error)) from error
        self._tail_start = max(start, pages)
        self._tail = tail[self._tail_start - start : offset - start]
        return FooterReader(directory, offset, self._read, self.name)

    def _directory_offset(self, tail: bytes) -> int:
        try:
            return layout.unpack_trailer(
                tail[-layout.TRAILER_BYTES :], name=self.name, total_bytes=self.size_bytes
            )
        except CorruptFragmentError:
            # The beginning distinguishes damage from another format or a later version.
            head = self._source.read_range(0, min(self.size_bytes, layout.PROLOGUE_BYTES))
            layout.check_prologue(head, name=self.name)
            raise

    def _read(self, start: int, end: int) -> bytes:
        """Returns the bytes of statistics pages."""
        if start >= self._tail_start:
            return self._tail[start - self._tail_start : end - self._tail_start]
        return self._source.read_range(start, end - start)


class _PrefixedSource:
    """A forward source of bytes in memory, continued by ranges of the object."""

    def __init__(self, source: RangeSource, first: bytes, position: int) -> None:
        self._source = source
        self._first = io.BytesIO(first)
        self._position = position

    def read(self, max_bytes: int) -> bytes:
        data = self._first.read(max_bytes)
        if not data:
            data = self._source.read_range(self._position, max_bytes)
            self._position += len(data)
        return data
