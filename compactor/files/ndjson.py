"""Newline-delimited JSON: one pass over the file for its types, one for its rows.

Types come from the whole file, so that a column that is null or integer at first may be double a
million lines later. Objects become structs, arrays lists, and ISO 8601 strings dates or timestamps
(see `readings`), at any level. Integers above int64 make the column uint64; beyond 64 bits, or among
fractions or negative numbers, they are refused. A column that the table has gets the table's type,
and is left out if no row names it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from compactor.errors import InputError
from compactor.files.byte_source import ByteSource
from compactor.files.json_blocks import parse_block
from compactor.files.json_columns import JsonColumns, fitted
from compactor.files.json_mistakes import explained
from compactor.files.names import Compression
from compactor.files.problems import PROBLEMS, first_failing
from compactor.files.source import FileBatches

MAX_LINE_BYTES: Final = 16 << 20
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines of a file, at least one of them not blank."""

    data: bytes
    first_line: int


class NdjsonBatches(FileBatches):
    """See `compactor.files.read.open_table_file`."""

    def __init__(
        self,
        path: str,
        compression: Compression,
        batch_bytes: int,
        known_schema: pa.Schema | None,
        on_scan: Callable[[int], None],
    ) -> None:
        super().__init__(path, batch_bytes)
        self._compression = compression
        self._source = ByteSource(path, compression)
        try:
            self._learn(JsonColumns(path, known_schema), on_scan)
        finally:
            self._source.close()
        self._source = ByteSource(path, compression)

    @property
    def bytes_consumed(self) -> int:
        return self._source.bytes_consumed

    def close(self) -> None:
        self._source.close()

    def _learn(self, columns: JsonColumns, on_scan: Callable[[int], None]) -> None:
        for block in line_blocks(self.path, self._source, self._batch_bytes):
            before = copy.deepcopy(columns)
            try:
                columns.absorb(block.data)
            except PROBLEMS:
                raise self._located(block, before.known, before.would_absorb) from None
            on_scan(self._source.bytes_consumed)
        self.schema = columns.schema()
        self._wire = columns.wire_schema()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for block in line_blocks(self.path, self._source, self._batch_bytes):
            try:
                yield self._rows(block.data)
            except PROBLEMS:
                raise self._located(block, self.schema, self._rows) from None

    def _rows(self, lines: bytes) -> pa.RecordBatch:
        parsed = parse_block(lines, self._wire, other_fields="error")
        columns = [fitted(parsed.column(field.name), field) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _located(
        self, block: Block, types: pa.Schema, attempt: Callable[[bytes], object]
    ) -> InputError:
        """The error of the first line of `block` that makes `attempt` on the lines up to it fail.

        types: of the columns whose type the user has given or can look up.
        """
        lines = block.data.split(b"\n")

        def attempt_first(count: int) -> None:
            start = b"\n".join(lines[:count])
            # Blank lines alone are no block, and no mistake either.
            if start.strip():
                attempt(start)

        count, error = first_failing(len(lines), attempt_first)
        cause = explained(error, lines[count - 1], types)
        return InputError(f"{self.path}, line {block.first_line + count - 1:,}: {cause}")


def line_blocks(path: str, source: ByteSource, batch_bytes: int) -> Iterator[Block]:
    """The lines of a file, about so many bytes at a time. Raises `InputError` for a line without an end."""
    rest, first_line = source.read(batch_bytes).removeprefix(_BOM), 1
    while rest:
        more = source.read(batch_bytes)
        cut = rest.rfind(b"\n") + 1 if more else len(rest)
        block, rest = rest[:cut], rest[cut:] + more
        if block.strip():
            yield Block(block, first_line)
        first_line += block.count(b"\n")
        if not cut and len(rest) > MAX_LINE_BYTES:
            raise InputError(
                f"{path}, line {first_line:,}: is longer than {MAX_LINE_BYTES >> 20} MiB: "
                "break the file into one object per line"
            )
