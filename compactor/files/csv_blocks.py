"""Parses CSV block by block, in whole rows, from memory: Arrow's threads see no object of Python's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.csv as pcsv

from compactor.common.arrow_memory import native_reader
from lsm_fragment.arrays.batches import one_batch

MAX_ROW_BYTES: Final = 4 << 20
_BLOCK_BYTES: Final = MAX_ROW_BYTES
_BOM: Final = b"\xef\xbb\xbf"
_CELL: Final = rb'(?:"(?:[^"]++|"")*+"[^,\r\n]*+|[^",\r\n][^,\r\n]*+)?+'
_ROW_END: Final = rb"(?:\n|\r\n|\r(?=[^\n]))"
_ROW: Final = _CELL + rb"(?:," + _CELL + rb")*+" + _ROW_END
"""A whole row, as Arrow divides them: a quote within a cell is part of it unless it is the first."""
_FIRST_ROW: Final = re.compile(rb"[\r\n]*+" + _ROW)
_ROWS: Final = re.compile(rb"(?:" + _ROW + rb")*+")


class LongRowError(ValueError):
    """A row is longer than `MAX_ROW_BYTES`."""


class Readable(Protocol):
    """A source of bytes; at its end, and only there, it gives b""."""

    def read(self, size: int, /) -> bytes: ...


class CsvBlocks:
    """The rows of a CSV source with a header; all cells are bytes, empty ones without quotes null."""

    def __init__(
        self,
        source: Readable,
        names: Sequence[str],
        on_bad_row: Callable[[pcsv.InvalidRow], str] | None,
    ) -> None:
        """on_bad_row: says what becomes of a row with too few or too many cells; None if it is an error."""
        self._source = source
        self._names = names
        self._on_bad_row = on_bad_row
        quoted = ('"' + name.replace('"', '""') + '"' for name in names)
        self._header = ",".join(quoted).encode() + b"\n"
        self.rows_before = 0
        """Rows before the block that is being parsed, bad ones included."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows of each block. Raises `LongRowError`, and `pa.ArrowInvalid`, whose row numbers are
        those in the block, where the header is row 1."""
        for block in self._blocks():
            self._bad = 0
            table = self._parsed(block)
            if table.num_rows:
                yield one_batch(table)
            self.rows_before += table.num_rows + self._bad

    def _blocks(self) -> Iterator[bytes]:
        """Yields whole rows without the header."""
        rest = self._filled(b"").removeprefix(_BOM)
        if (header := _FIRST_ROW.match(rest)) is not None:
            rest = rest[header.end() :]
        while True:
            more = self._filled(rest)
            if len(more) == len(rest):
                break
            cut = _end_of_rows(more)
            if not cut and len(more) >= MAX_ROW_BYTES:
                raise LongRowError
            if cut:
                yield more[:cut]
            rest = more[cut:]
        if rest:
            yield rest

    def _filled(self, rest: bytes) -> bytes:
        """Returns `rest` and what makes it a block; just `rest` at the end."""
        parts, size = [rest], len(rest)
        while size < _BLOCK_BYTES and (data := self._source.read(_BLOCK_BYTES - size)):
            parts.append(data)
            size += len(data)
        return b"".join(parts)

    def _parsed(self, block: bytes) -> pa.Table:
        # Before each block, the header also keeps Arrow from taking a cell's start for a byte order mark.
        return pcsv.read_csv(
            native_reader(self._header, block),
            # Threads would lose the row numbers of errors.
            read_options=pcsv.ReadOptions(
                use_threads=False, block_size=len(self._header) + len(block) + 1
            ),
            parse_options=pcsv.ParseOptions(
                newlines_in_values=True,
                ignore_empty_lines=len(self._names) > 1,
                invalid_row_handler=None if self._on_bad_row is None else self._skipped,
            ),
            convert_options=pcsv.ConvertOptions(
                # Bytes, so that a cell that is not UTF-8 can be named.
                column_types=dict.fromkeys(self._names, pa.binary()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _skipped(self, row: Any) -> str:
        assert self._on_bad_row is not None
        self._bad += 1
        return self._on_bad_row(row._replace(number=self.rows_before + row.number))


def _end_of_rows(data: bytes) -> int:
    """Returns the end of whole rows from the start of `data`, 0 if there is none."""
    if b'"' not in data:
        return data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, -1) + 1
    found = _ROWS.match(data)
    return 0 if found is None else found.end()
