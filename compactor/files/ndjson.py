"""Reads newline-delimited JSON, or one array of objects (.json), in one pass over the file.

Types come from the whole file, so that a column that is null or integer at first may be double a million
lines later. Objects become structs, arrays lists, and ISO 8601 strings dates or timestamps (see `readings`),
at any level. Integers above int64 make the column uint64; beyond 64 bits, or among fractions or negative
numbers, they are refused. A column of the table gets the table's type, and is omitted if no row has it.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct

from compactor.common.message import Setting
from compactor.common.setting_keys import ON_CONFLICT
from compactor.errors import InputError
from compactor.files.byte_source import FileBytes
from compactor.files.json_arrays import FieldPath
from compactor.files.json_columns import JsonColumns, fitted
from compactor.files.json_items import ItemBytes
from compactor.files.json_mistakes import FATAL, Mistake, explained, explained_misfit
from compactor.files.problems import PROBLEMS, UnknownColumnsError
from compactor.files.source import BadRow, Piece, TextBatches, Wanted, beginning, none_good
from compactor.files.text_values import from_json_texts
from lsm_fragment import compute as pc
from lsm_fragment.native.arrays.json_rows import Problem

MAX_LINE_BYTES: Final = 16 << 20
_BLOCK_BYTES: Final = 4 << 20
_STREAM_BYTES: Final = 1 << 20
"""Rows of a stream are passed on a block at a time."""
_MAX_MIXED: Final = 64
_OF_KINDS: Final = (Problem.CONFLICT, Problem.ROUNDED)
_NOT_UTF8: Final = "is not valid UTF-8: save the file as UTF-8"
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BLANKS: Final = b" \t\r\n"


class LineBlock(Struct, frozen=True):
    """Complete lines of a file, at least one of them not blank."""

    data: bytes
    first_line: int


class _MixedError(Exception):
    """A field has values of several kinds."""

    def __init__(self, field: FieldPath) -> None:
        super().__init__(field)
        self.field = field


class NdjsonBatches(TextBatches[LineBlock]):
    """An open NDJSON file; see `compactor.files.read.open_table_file`."""

    def __init__(
        self,
        *args: Any,
        mixes_kinds: bool | None,
        text_holds_all: bool,
        **options: Any,
    ) -> None:
        """mixes_kinds: reads a field whose values are of several kinds as text. For each such field, up to
        `_MAX_MIXED`, the file is read again from its beginning. If false, the error says that it can be."""
        self._mixes, self._text_holds_all = mixes_kinds, text_holds_all
        self._mixed: set[FieldPath] = set()
        while True:
            try:
                super().__init__(*args, **options)
            except _MixedError as found:
                self._mixed.add(found.field)
            else:
                return

    def _begin(self, known: pa.Schema | None) -> None:
        self._columns = JsonColumns(
            self.path,
            known,
            self._used,
            self._mixed,
            text_holds_all=self._text_holds_all,
            keeps_zones=self._keeps_zones,
        )
        self._columns.may_be_empty = self._may_be_empty
        self._lines_before = 0
        """Lines that are not blank, before the current block."""
        self._new_bad: list[BadRow] = []

    @property
    def _used(self) -> Wanted:
        if self._wanted is None or self._kept_column is None:
            return self._wanted
        return {*self._wanted, self._kept_column}

    def _declared(self, known: pa.Schema) -> pa.Schema | None:
        used = self._used
        if not used or not set(used) <= set(known.names):
            return None
        return pa.schema([field for field in known if field.name in used])

    def _bad_rows(self) -> list[BadRow]:
        return sorted(self._new_bad)

    def _take_bad_rows(self) -> list[BadRow]:
        bad, self._new_bad = self._bad_rows(), []
        return bad

    def _blocks(self) -> Iterator[LineBlock]:
        block_bytes = _STREAM_BYTES if self.is_stream else _BLOCK_BYTES
        return line_blocks(self.path, self._source, min(self._batch_bytes, block_bytes))

    def _learned_schema(self) -> pa.Schema:
        try:
            schema = self._columns.schema()
        except UnknownColumnsError:
            if not self._new_bad:
                raise
            message = f"{self.path}: has {none_good(self._bad_rows())}"
            raise UnknownColumnsError(message) from None
        self.lacks_columns = self._columns.lacks_columns
        return schema

    def _values_of(self, texts: pa.Array, dtype: pa.DataType) -> pa.Array:
        return from_json_texts(texts, dtype)

    def _learned(self, block: LineBlock) -> Iterator[Piece]:
        bad: dict[int, InputError] = {}
        for found in self._good_rows(block, bad):
            self._lines_before += self._columns.arrays.rows.rows
            yield self._columns.learn(found)
        if bad:
            self._note_bad(block, bad)

    def _parsed(self, block: LineBlock) -> Iterator[Piece]:
        names = dict(self._columns.arrays.rows.children(0))
        for found in self._good_rows(block, {}):
            columns = {names[node]: column for node, column in found.items()}
            yield Piece(self._columns.arrays.rows.rows, columns)

    def _fitted(self, piece: Piece) -> pa.RecordBatch:
        none = pa.nulls(piece.rows)
        columns = [fitted(piece.columns.get(field.name, none), field) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _good_rows(
        self, block: LineBlock, bad: dict[int, InputError]
    ) -> Iterator[dict[int, pa.Array]]:
        """Yields columns by their nodes, and adds the errors of bad lines by the places where they begin.

        Raises `InputError` for the first bad line unless they are left out.
        """
        rows = self._columns.arrays.rows
        data, at = self._of_utf8(block, bad), 0
        while at < len(data):
            start, lines = at, rows.lines
            rows.clear()
            mistakes: dict[int, InputError] = {}
            at = self._parse(block, data, at, mistakes)
            found, misfits = self._columns.parsed()
            for misfit in misfits:
                place = rows.line_at(misfit.row)
                field = self._columns.field_of(misfit.node)
                reason = explained_misfit(misfit, _line(data, place), self._columns.arrays, field)
                mistakes.setdefault(place, self._error(block, place, reason, misfit.error))
            if mistakes and not self._leaves_out:
                raise mistakes[min(mistakes)]
            bad |= mistakes
            if misfits:
                rows.undo_block(lines)
                data, at = _without(data, mistakes), start
            elif rows.rows:
                yield found

    def _parse(
        self, block: LineBlock, data: bytes, at: int, mistakes: dict[int, InputError]
    ) -> int:
        """Parses lines from `at` on, without those with mistakes if they are left out. Returns the end."""
        rows = self._columns.arrays.rows
        while True:
            at = rows.parse(data, at)
            if (found := rows.mistake()) is None:
                return at
            mistake, line = Mistake(*found), _line(data, at)
            field = self._columns.field_of(mistake.node)
            may_mix = mistake.problem in _OF_KINDS and field is None
            if may_mix:
                self._mix(mistake.node)
            reason = explained(mistake, line, self._columns.arrays, field, self._unit)
            is_advised = may_mix and self._mixes is False and not self._leaves_out
            advice = (", or say ", ON_CONFLICT, " string") if is_advised else ()
            mistakes[at] = self._error(block, at, reason, advice=advice)
            if not self._leaves_out:
                return len(data)
            # A line that the first pass left out may have a field too many beside those of later lines.
            if mistake.problem in FATAL and self._is_learning:
                raise mistakes[at]
            at += len(line)

    def _mix(self, node: int) -> None:
        """Begins anew with a field as text, if that is wanted. Fields of the table keep their types."""
        if self._mixes and self._is_learning and len(self._mixed) < _MAX_MIXED:
            raise _MixedError(self._columns.arrays.rows.names(node))

    def _of_utf8(self, block: LineBlock, bad: dict[int, InputError]) -> bytes:
        """Returns the block without lines that are not UTF-8."""
        offsets = pa.py_buffer(np.array([0, len(block.data)], np.int64))
        whole = pa.Array.from_buffers(
            pa.large_binary(), 1, [None, offsets, pa.py_buffer(block.data)]
        )
        try:
            pc.cast(whole, pa.large_string())
        except PROBLEMS:
            strange, at = {}, 0
            for line in block.data.split(b"\n"):
                try:
                    line.decode()
                except UnicodeDecodeError:
                    strange[at] = self._error(block, at, _NOT_UTF8)
                at += len(line) + 1
            if not self._leaves_out:
                # An earlier line may have another mistake.
                first = min(strange)
                for _ in self._good_rows(LineBlock(block.data[:first], block.first_line), {}):
                    pass
                raise strange[first] from None
            bad |= strange
            return _without(block.data, strange)
        return block.data

    @property
    def _unit(self) -> str:
        return "item" if getattr(self._source, "is_array", False) else "line"

    def _error(
        self,
        block: LineBlock,
        place: int,
        reason: str,
        cause: BaseException | None = None,
        *,
        advice: Sequence[str | Setting] = (),
    ) -> InputError:
        line = block.first_line + block.data.count(b"\n", 0, place)
        error = InputError(f"{self.path}, {self._unit} {line:,}: {reason}", *advice)
        error.__cause__ = cause
        return error

    def _note_bad(self, block: LineBlock, bad: dict[int, InputError]) -> None:
        """Records bad lines, with their values of the kept column."""
        lines, at = [], 0
        for line in block.data.split(b"\n"):
            if line.strip(_BLANKS):
                lines.append((at, line))
            at += len(line) + 1
        first = self._lines_before + len(bad) - len(lines)
        places = sorted(bad)
        begins = [at for at, _ in lines]
        for place, n in zip(places, np.searchsorted(begins, places, "right") - 1, strict=True):
            ordinal = first + int(n)
            text = "" if self._max_bad_rows is None else beginning(lines[n][1])
            self._new_bad.append(BadRow(ordinal, str(bad[place]), text))
            self._keep(ordinal, lines[n][1])
        self._lines_before += len(bad)
        self._check_bad_rows(len(self._new_bad), str(bad[places[0]]))

    def _keep(self, ordinal: int, line: bytes) -> None:
        """Stores the value of the kept column, if the line is an object that has it."""
        if self._kept_column is None:
            return
        try:
            value = _fields.decode(line).get(self._kept_column)
            if value is not None:
                self._kept[ordinal] = bytes(value).decode()
        except (ValueError, RecursionError):
            return


class JsonBatches(NdjsonBatches):
    """An open file of lines, or of one array."""

    def _opened(self) -> FileBytes:
        return ItemBytes(self.path, self._place, self._compression, self._options.encoding)


def _line(data: bytes, place: int) -> bytes:
    end = data.find(b"\n", place)
    return data[place:] if end < 0 else data[place:end]


def _without(data: bytes, places: Iterable[int]) -> bytes:
    """Returns the data with blanks in place of some lines."""
    left = bytearray(data)
    for place in places:
        size = len(_line(data, place))
        left[place : place + size] = b" " * size
    return bytes(left)


def line_blocks(path: str, source: FileBytes, batch_bytes: int) -> Iterator[LineBlock]:
    """Yields the lines of a file, about `batch_bytes` at a time. Raises `InputError` for a line that is too
    long."""
    rest, first_line = b"", 1
    more = source.read(batch_bytes).removeprefix(BOM_UTF8)
    while rest or more:
        cut = more.rfind(b"\n") + 1
        if not cut and more:
            rest += more
            if len(rest) > MAX_LINE_BYTES:
                raise InputError(
                    f"{path}, line {first_line:,}: is longer than {MAX_LINE_BYTES >> 20} MiB: "
                    "break the file into one object per line"
                )
        else:
            block, rest = rest + more[:cut], more[cut:]
            if block.lstrip(_BLANKS):
                yield LineBlock(block, first_line)
            first_line += int(np.count_nonzero(np.frombuffer(block, np.uint8) == ord("\n")))
        more = source.read(batch_bytes)
