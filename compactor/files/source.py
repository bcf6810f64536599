"""The common interface of open files of every format: a schema and a stream of batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice, starmap
from typing import Any, ClassVar, Final, Generic, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types as pt

from compactor.common.ahead import Ahead
from compactor.common.counts import counted
from compactor.errors import InputError
from compactor.files.byte_source import FileBytes
from compactor.files.names import Compression
from compactor.files.places import Place
from compactor.files.problems import PROBLEMS, reading
from compactor.files.text_options import TextOptions
from lsm_fragment import compute as pc
from lsm_fragment.arrays.types import contains
from lsm_fragment.failing import null_where_failing
from lsm_fragment.keys.sort_schema import SortSchema

Ordinals = npt.NDArray[np.int64]
Block = TypeVar("Block")
Item = TypeVar("Item")
Wanted = Collection[str] | None
"""Names of the columns to read, of which a file may lack some; None for all."""


_KEPT_BYTES: Final = 4096
_GUESSED_BYTES: Final = 16 << 20
_GUESSED_ROWS: Final = 100_000
"""Guess types after so much of the rows, or so many, and again while a column had no value yet."""
_BLOCKS_AHEAD: Final = 1
_PARSED_AHEAD: Final = 2


class TypesDifferError(Exception):
    """A file's values are not of the types that were guessed from its beginning."""


class BadRow(NamedTuple):
    """A row omitted from the batches."""

    ordinal: int
    """Position among all rows of the file, from 0."""
    reason: str
    """Message with file, line and cause."""
    text: str = ""
    """The beginning of its text, if bad rows were asked for with their texts and the format knows it."""


class FileBatches(ABC):
    """An open file of rows: a context manager, iterable once, with memory bounded by `batch_bytes`.

    Iterating raises `InputError` with file, place and cause in one line.
    """

    schema: pa.Schema
    """Schema of every batch."""
    sort: SortSchema | None = None
    """The order of the rows that the file states: an unchecked hint."""
    lacks_columns: bool = False
    """Whether a text file has no rows to tell its columns or their types."""
    is_untyped: bool = False
    """Whether columns without a declared type are texts because no row with all its cells tells theirs."""
    is_checked: bool = False
    """Whether batches are canonical and their values validated."""
    held_bytes: int = 0
    """Bytes of rows in memory between opening and iterating."""

    is_stream: bool = False
    """Whether the file can be read only once. Then `schema` has the declared columns, batches may have others
    after them, and `bad_rows` has those up to the last batch."""

    threads: int = 1

    bytes_total: int = 0
    """Size of the file as stored; 0 for a stream, and for rows that come from no file."""

    is_guess: bool = False
    """Whether the types of `schema` are guesses, because the rest of the file is not read yet. Then iterating
    raises `TypesDifferError` where they do not hold, and `bad_rows` has those up to the last batch."""

    reads_ahead: ClassVar[bool] = True
    """Whether threads may work on blocks: code that leaves the interpreter to others, and shares nothing."""

    def __init__(self, path: str, place: Place, batch_bytes: int, threads: int = 1) -> None:
        """threads: with more than one, rows are read ahead in threads, which end with `close`."""
        self.path = path
        self._batch_bytes = batch_bytes
        self.threads = threads if self.reads_ahead and not place.is_stream else 1
        self._in_threads: list[Ahead[Any]] = []
        self.bad_rows: list[BadRow] = []
        """Omitted rows of a text file, in order, if it was opened with `leaves_out_bad_rows`;
        those before the next batch, if it is read in one pass."""
        self._kept: dict[int, str] = {}
        """Text of the kept column by the position of a bad row, if known."""
        self.is_stream = place.is_stream
        self.bytes_total = place.size_bytes

    def kept_of_bad_rows(self, dtype: pa.DataType) -> pa.Array:
        """Returns the kept column's value for each of `bad_rows`; null if unknown."""
        texts = pa.array([self._kept.get(row.ordinal) for row in self.bad_rows], pa.string())
        return null_where_failing(texts, lambda some: self._values_of(some, dtype), PROBLEMS)

    def _values_of(self, texts: pa.Array, dtype: pa.DataType) -> pa.Array:
        """Parses texts of this file format to values. Raises one of `PROBLEMS`."""
        return texts.cast(dtype)

    @property
    def bytes_consumed(self) -> int:
        """Progress of the iteration in stored bytes, at most `bytes_total`."""
        return 0

    def close(self) -> None:  # noqa: B027 - rows that come from no file hold nothing
        """Releases the file. Idempotent."""

    def _ahead(self, items: Iterator[Item], waiting: int) -> Iterator[Item]:
        """Makes items in a thread of their own, if there may be one; `waiting` of them may wait."""
        if self.threads == 1:
            return items
        made = Ahead(items, waiting, f"read {self.path}")
        self._in_threads.append(made)
        return made

    def _end_threads(self) -> None:
        """Ends the threads that read ahead. Idempotent."""
        for made in self._in_threads:
            made.stop()  # one may wait for another
        while self._in_threads:
            self._in_threads.pop().close()

    def settle(self) -> bool:
        """Reads what is left of a file whose types are guesses. `schema` is that of the whole file then.

        Returns whether it is as it was guessed. Raises `InputError`.
        """
        return True

    def rewind(self) -> bool:
        """Lets the file be iterated once more, after `settle`. Returns whether it can be."""
        return False

    def before_waiting(self) -> None:  # noqa: B027 - most files have nothing to do then
        """A hook that the caller invokes before it waits for something else, such as a disk."""

    @abstractmethod
    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Yields batches of `schema` of any size."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        with self._reading():
            for batch in self._batches():
                yield from sliced(batch, self._batch_bytes)

    def _reading(self) -> AbstractContextManager[None]:
        """Returns a context that turns errors of reading rows into `InputError`."""
        return reading(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class BatchesOf(FileBatches):
    """A wrapper of an open file that yields other batches, as `_batches` defines."""

    def __init__(self, file: FileBatches) -> None:
        """file: this object takes ownership, and closes it."""
        self._file = file
        self.path = file.path
        self.schema = file.schema
        self.sort = file.sort
        self.lacks_columns = file.lacks_columns
        self.is_untyped = file.is_untyped
        self.bad_rows = file.bad_rows
        self.bytes_total = file.bytes_total
        self.threads = file.threads

    @property
    def bytes_consumed(self) -> int:
        return self._file.bytes_consumed

    def close(self) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches()


class Places:
    """Positions of the good rows among all rows."""

    def __init__(self, bad: Sequence[int] | Ordinals = ()) -> None:
        """bad: positions of the omitted rows, ascending."""
        self.left_out = len(bad)
        self._good_before = np.asarray(bad, dtype=np.int64) - np.arange(len(bad))

    def of(self, start: int, count: int) -> Ordinals:
        """Returns the positions of `count` good rows from number `start` on. Shape (count,)."""
        rows = np.arange(start, start + count)
        return rows + np.searchsorted(self._good_before, rows, side="right")


def sliced(
    batch: pa.RecordBatch, batch_bytes: int, max_rows: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Splits a batch into even slices, of at most about `batch_bytes` if rows are of similar size, and of at
    most `max_rows`."""
    parts = max(1, -(-batch.nbytes // batch_bytes))
    rows = max(1, -(-batch.num_rows // parts))
    if max_rows is not None:
        rows = min(rows, max_rows)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def wanted_names(names: Sequence[str], wanted: Wanted) -> list[str]:
    """Returns the wanted ones of a file's columns; if there is none, the first, which counts the rows."""
    if wanted is None:
        return list(names)
    return [name for name in names if name in wanted] or list(names[:1])


class Piece(NamedTuple):
    """Consecutive rows of a text file."""

    rows: int
    columns: dict[str, pa.Array]
    """By name, as values of their types so far, or texts."""


class _Read(NamedTuple):
    """The rows of one block, and what is known with them."""

    bytes_consumed: int
    batches: list[pa.RecordBatch]
    bad_rows: list[BadRow]
    """Of this block; of a file whose types are guesses, of all blocks up to this one."""
    is_as_guessed: bool = True


class TextBatches(FileBatches, Generic[Block]):
    """An open text file, whose types one pass over it tells; see `compactor.files.read.open_table_file`.

    That pass holds the first rows that it parsed, up to some batches; only those after them are parsed again.
    Where types may be guessed, it waits there, and goes on while the rows are iterated. With several threads
    one cuts the file into blocks, one parses them, and the caller's takes their rows.
    """

    def __init__(
        self,
        path: str,
        place: Place,
        compression: Compression,
        batch_bytes: int,
        known_schema: pa.Schema | None,
        on_scan: Callable[[int], None],
        *,
        options: TextOptions,
        columns: Wanted,
        in_one_pass: bool,
        may_be_empty: bool,
        leaves_out_bad_rows: bool,
        max_bad_rows: int | None,
        kept_column: str | None,
        held_bytes: int,
        guesses: bool,
        infers_types: bool,
        keeps_zones: bool,
        threads: int,
    ) -> None:
        super().__init__(path, place, batch_bytes, threads)
        self._place = place
        self._compression = compression
        self._leaves_out = leaves_out_bad_rows
        self._max_bad_rows = max_bad_rows
        self._kept_column = kept_column
        self._options = options
        self._wanted = columns
        self._may_be_empty = may_be_empty
        self._room = held_bytes
        self._guesses = guesses
        self._is_learning = True
        """Whether this pass may still change types."""
        self._rest: Iterator[tuple[int, Block]] = iter(())
        """The blocks that the pass for the types has not read."""
        self._read_on: Iterator[_Read] | None = None
        """Their rows, while types are guesses."""
        self._is_settling = False
        self._is_as_guessed = True
        self._mistake: InputError | None = None
        """What ended the pass for the types."""
        self._infers_types = infers_types
        self._keeps_zones = keeps_zones
        self._source = self._opened()
        self._bytes_consumed = 0
        self._held: deque[tuple[int, list[Piece]]] = deque()
        """Rows by block, from the beginning of the file on, with the bytes read up to there."""
        self._is_streamed = self.is_stream
        if self.is_stream:
            # Its first bytes may be long in coming.
            assert known_schema is not None
            self.schema = known_schema
            return
        try:
            self._begin(known_schema)
            declared = (
                None if known_schema is None or not in_one_pass else self._declared(known_schema)
            )
            if declared is None:
                self._scan(on_scan)
            else:
                self._is_streamed, self.schema = True, declared
        finally:
            if not self.is_guess:
                self._end_threads()
                self._source.close()

    @abstractmethod
    def _begin(self, known: pa.Schema | None, /) -> None:
        """Prepares for the first pass."""

    @abstractmethod
    def _blocks(self) -> Iterator[Block]:
        """Yields the file from `_source`, always divided in the same way."""

    @abstractmethod
    def _learned(self, block: Block) -> Iterator[Piece]:
        """Yields the good rows of a block, and learns types and bad rows from it."""

    @abstractmethod
    def _parsed(self, block: Block) -> Iterator[Piece]:
        """Yields the good rows of a block once the schema is known."""

    def _declared(self, known: pa.Schema) -> pa.Schema | None:  # noqa: ARG002 - of the interface
        """Returns the schema if all columns to read are known, and the format can be read in one pass."""
        return None

    @abstractmethod
    def _bad_rows(self) -> list[BadRow]:
        """Returns the bad rows of the blocks learned so far, in order."""

    def _take_bad_rows(self) -> list[BadRow]:
        """Returns the bad rows of the blocks learned since the last call, in order, and forgets them."""
        raise NotImplementedError

    @abstractmethod
    def _learned_schema(self) -> pa.Schema:
        """Returns the schema of the blocks learned so far."""

    @abstractmethod
    def _fitted(self, piece: Piece) -> pa.RecordBatch:
        """Converts rows to the schema."""

    def _opened(self) -> FileBytes:
        return FileBytes(self.path, self._place, self._compression, self._options.encoding)

    def _check_bad_rows(self, count: int, reason: str) -> None:
        """Raises `InputError` for more bad rows than allowed. reason: that of one of them."""
        if self._max_bad_rows is not None and count > self._max_bad_rows:
            raise InputError(
                f"{self.path}: more than {counted(self._max_bad_rows, 'row')} can't be taken, such as "
                f"{reason}; or raise --max-rejects"
            )

    def _numbered_blocks(self) -> Iterator[tuple[int, Block]]:
        """Yields the blocks, each with the bytes read up to its end."""
        for block in self._blocks():
            yield self._source.bytes_consumed, block

    def _scan(self, on_scan: Callable[[int], None]) -> None:
        room, guess_at = self._room, max(0, self._room - _GUESSED_BYTES)
        rows = 0
        self._is_all_held = room > 0
        self._rest = self._numbered_blocks()
        if not self._guesses:  # which wait for their iteration, and threads would too
            self._rest = self._ahead(self._rest, _BLOCKS_AHEAD)
        for consumed, block in self._rest:
            pieces = list(self._learned(block))
            on_scan(consumed)
            if not self._is_all_held:
                continue
            room -= sum(column.nbytes for piece in pieces for column in piece.columns.values())
            self._is_all_held = room > 0
            self._held.append((consumed, pieces))
            rows += sum(piece.rows for piece in pieces)
            if room <= guess_at or rows >= _GUESSED_ROWS:
                if self._guessed():
                    self._is_all_held = False
                    break
                guess_at, rows = max(0, min(guess_at, room) - _GUESSED_BYTES), 0
            if not self._is_all_held:
                self._held.pop()
        if not self.is_guess:
            self._end_pass()
        self.held_bytes = self._room - max(0, room) if self._held else 0

    def _guessed(self) -> bool:
        """Takes the types up to here for those of the file, unless a column had no value yet, or rows must be
        parsed again. Returns whether it does."""
        if not self._guesses:
            return False
        self.schema, self.bad_rows = self._learned_schema(), self._bad_rows()
        lacks_types = any(contains(field.type, pt.is_null) for field in self.schema)
        self.is_guess = not lacks_types and not self._must_parse_held_again()
        return self.is_guess

    def _end_pass(self) -> None:
        """Ends the pass that tells the types."""
        self.is_guess = self._is_learning = False
        self.schema, self.bad_rows = self._learned_schema(), sorted(self._bad_rows())
        if self._must_parse_held_again():
            self._held.clear()
            self._is_all_held = False

    def _must_parse_held_again(self) -> bool:
        return any(
            self._must_be_parsed_again(piece) for _, pieces in self._held for piece in pieces
        )

    def _must_be_parsed_again(self, piece: Piece) -> bool:
        """Returns whether the file has to be parsed again, because of what came after these rows."""
        columns = ((piece.columns.get(field.name), field.type) for field in self.schema)
        return any(_has_lost(column, dtype) for column, dtype in columns if column is not None)

    def _parsed_ahead(
        self, blocks: Iterator[tuple[int, Block]], parse: Callable[[int, Block], _Read]
    ) -> Iterator[_Read]:
        return self._ahead(starmap(parse, self._ahead(blocks, _BLOCKS_AHEAD)), _PARSED_AHEAD)

    def _again(self, first: int) -> Iterator[tuple[int, Block]]:
        """Yields the blocks of another reading from number `first` on."""
        self._source = self._opened()
        yield from islice(self._numbered_blocks(), first, None)

    def _in_one_pass(self, consumed: int, block: Block) -> _Read:
        """Reads a block in the only pass."""
        pieces = list(self._learned(block))
        made = self._declared_and_others if self.is_stream else self._fitted
        return _Read(consumed, list(map(made, pieces)), self._take_bad_rows())

    def _as_known(self, consumed: int, block: Block) -> _Read:
        return _Read(consumed, list(map(self._fitted, self._parsed(block))), [])

    def _as_guessed(self, consumed: int, block: Block) -> _Read:
        """Reads a block, and whether it leaves the types as they were guessed."""
        pieces = list(self._learned(block))
        if self._is_settling:
            return _Read(consumed, [], [])
        is_as_guessed = self._learned_schema() == self.schema
        batches = list(map(self._fitted, pieces)) if is_as_guessed else []
        return _Read(consumed, batches, self._bad_rows(), is_as_guessed)

    def _declared_and_others(self, piece: Piece) -> pa.RecordBatch:
        """Returns rows of a stream, whose other columns are found on the way."""
        missing = {f.name: pa.nulls(piece.rows, f.type) for f in self.schema}
        batch = self._fitted(Piece(piece.rows, missing | piece.columns))
        for name, column in piece.columns.items():
            if self.schema.get_field_index(name) < 0 and column.null_count < piece.rows:
                batch = batch.append_column(name, column)
        return batch

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._is_streamed:
            yield from self._streamed()
            return
        rest: Iterator[_Read] = iter(())
        if self.is_guess:
            self._begin_to_read_on()
        elif not self._is_all_held:
            rest = self._parsed_ahead(self._again(len(self._held)), self._as_known)
        while self._held:
            self._bytes_consumed, pieces = self._held.popleft()
            while pieces:
                yield self._fitted(pieces.pop(0))
        if self.is_guess:
            yield from self._guessed_rest()
        for read in rest:
            self._bytes_consumed = read.bytes_consumed
            yield from read.batches

    def _streamed(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows in the only pass; `bad_rows` has those up to there."""
        blocks = self._numbered_blocks() if self.is_stream else self._again(0)
        if self.is_stream:
            self._begin(self.schema)
        for read in self._parsed_ahead(blocks, self._in_one_pass):
            self._bytes_consumed = read.bytes_consumed
            self.bad_rows += read.bad_rows
            yield from read.batches

    def _guessed_rest(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows after those held, as long as they leave the types as they were guessed."""
        while (read := self._next_read()) is not None:
            if not read.is_as_guessed:
                raise TypesDifferError(self.path)
            self._bytes_consumed, self.bad_rows = read.bytes_consumed, read.bad_rows
            yield from read.batches
        self.settle()

    def _begin_to_read_on(self) -> None:
        if self._read_on is None:
            self._read_on = self._parsed_ahead(self._rest, self._as_guessed)

    def _next_read(self) -> _Read | None:
        """Returns the next block's rows; None at the end. A mistake is raised again by each further call."""
        assert self._read_on is not None
        try:
            if self._mistake is not None:
                raise self._mistake
            with self._reading():
                return next(self._read_on, None)
        except InputError as error:
            self._mistake = error
            raise

    def settle(self) -> bool:
        if self.is_guess:
            self._is_settling = True
            self._begin_to_read_on()
            while self._next_read() is not None:
                pass
            guessed = self.schema
            self._end_pass()
            self._source.close()
            self._is_as_guessed = self.schema == guessed
        return self._is_as_guessed

    def rewind(self) -> bool:
        self._held.clear()
        self._is_all_held = False
        self._is_as_guessed = True
        return not self._is_streamed

    @property
    def bytes_consumed(self) -> int:
        return self._bytes_consumed

    def close(self) -> None:
        self._end_threads()
        self._held.clear()
        self._source.close()


def none_good(bad: Sequence[BadRow]) -> str:
    """Returns the end of a message about files whose rows are all bad, which needs a verb before it."""
    rows = counted(len(bad), "row")
    return f"{rows}, none of which can be taken, so the columns are unknown: {bad[0].reason}"


def beginning(row: bytes) -> str:
    """Returns the text of a bad row, as far as it is kept."""
    return row[:_KEPT_BYTES].decode(errors="replace")


def _has_lost(column: pa.Array, dtype: pa.DataType) -> bool:
    """Returns whether values lack something of their texts that they need as values of another type: all of
    it as texts, the sign of -0 as doubles."""
    if pt.is_nested(column.type):
        return column.type != dtype and "int64" in str(column.type) and "double" in str(dtype)
    if pt.is_string(dtype):
        return not (pt.is_string(column.type) or pt.is_null(column.type))
    if pt.is_floating(dtype) and pt.is_integer(column.type):
        return pc.any(pc.equal(column, 0)).as_py() is True
    return False
