"""One input of a merge: a fragment streamed front to back on a single GET."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from compactor.merge.errors import InputMismatchError
from compactor.merge.prefetch import ClosableSource, PrefetchedSource
from format.footer import Footer
from format.schema import SortSchema
from format.stream_reader import FragmentStream
from format.types import is_stored_as, storage_type


@dataclass(frozen=True, slots=True)
class InputFragment:
    """What is known of an input before it is read."""

    name: str
    """Its address, for errors."""
    source_id: str
    """What outputs call it in their headers: independent of where the table lies."""
    rows: int
    size_bytes: int
    row_hash: int
    open_source: Callable[[], ClosableSource]
    """Starts the one GET."""


class MergeInput:
    """Keys first, then column by column; chunks are decoded when rows of them are taken."""

    def __init__(self, fragment: InputFragment, window_bytes: int) -> None:
        self.fragment = fragment
        self._source = PrefetchedSource(fragment.open_source, window_bytes)
        self._stream: FragmentStream | None = None
        self._column: str | None = None
        self._chunk: pa.Array | None = None
        self._position = 0

    @property
    def name(self) -> str:
        return self.fragment.name

    @property
    def fetch_wait_seconds(self) -> float:
        return self._source.wait_seconds

    def open(self, schema: pa.Schema, sort: SortSchema) -> None:
        """Reads the header. Raises `InputMismatchError` if it does not fit `schema` and `sort`."""
        self._stream = FragmentStream(self._source, self.name)
        header = self._stream.header
        if header.sort != sort:
            raise InputMismatchError(
                f"{self.name}: sorted by {', '.join(map(str, header.sort))} where the table sorts by "
                + ", ".join(map(str, sort))
            )
        types = {column.name: column.type for column in schema}
        for field in header.schema:
            expected = types.get(field.name)
            if expected is None or not is_stored_as(field.type, expected):
                raise InputMismatchError(
                    f"{self.name}: column {field.name!r} is of type {field.type}, "
                    f"the table's is {expected}"
                )
        self._key_types = [storage_type(schema.field(column.column).type) for column in sort]

    @property
    def stream(self) -> FragmentStream:
        assert self._stream is not None, "open() comes first"
        return self._stream

    def next_keys(self) -> list[pa.Array] | None:
        """The next row group's sort columns; None after the last. See `KeySource`."""
        blocks = self.stream.next_key_group()
        if blocks is None:
            self._column = self.stream.next_column()
            return None
        return [
            block.decode(dtype, keep_dictionary=True)
            for block, dtype in zip(blocks, self._key_types, strict=True)
        ]

    def has_column(self, name: str) -> bool:
        """Whether the column about to be read is `name`; ask in lexicographic order."""
        return self._column == name

    def take(self, name: str, dtype: pa.DataType, rows: int) -> list[pa.Array]:
        """The next `rows` values of column `name`, in pieces; nulls if the input does not have it."""
        if self._column != name:
            return [pa.nulls(rows, dtype)]
        pieces = []
        while rows:
            if self._chunk is None or self._position == len(self._chunk):
                self._chunk = self.stream.next_chunk().decode(dtype, keep_dictionary=True)
                self._position = 0
            piece = self._chunk.slice(self._position, rows)
            self._position += len(piece)
            rows -= len(piece)
            pieces.append(piece)
        if self._chunk is not None and self._position == len(self._chunk):
            self._chunk = None  # a run's next fragment takes over: only one chunk a run stays
        return pieces

    def end_column(self, name: str) -> None:
        """Goes on to the next column once all rows of `name` were taken."""
        if self._column == name:
            self._chunk, self._position = None, 0
            self._column = self.stream.next_column()

    def finish(self) -> Footer:
        """Reads footer and trailer. Raises `InputMismatchError` if they are not the log's fragment."""
        footer = self.stream.finish()
        if (footer.rows, footer.row_hash) != (self.fragment.rows, self.fragment.row_hash):
            raise InputMismatchError(
                f"{self.name}: its footer says {footer.rows} rows of hash {footer.row_hash:016x}, the "
                f"table's log {self.fragment.rows} rows of hash {self.fragment.row_hash:016x}"
            )
        return footer

    def close(self) -> None:
        """Ends the GET wherever it is. Idempotent."""
        self._source.close()
