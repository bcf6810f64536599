"""Turns the chunks of one input into rows of the table, as `schemas` bound them: decodes them, leaves deleted
rows and dropped columns out, and converts columns whose type the table has changed."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as pt

from compactor.merge.errors import InputMismatchError, MergeCheckError
from compactor.merge.inputs.changed_rows import ConvertedRows, DroppedRows
from compactor.merge.inputs.decoded import DecodedRows
from compactor.merge.inputs.decoding import Decoding, DecodingAhead, payload_bytes
from compactor.merge.inputs.schemas import InputSchema
from compactor.resources.reservation import Reservation
from compactor.resources.stopwatch import Stopwatch
from lsm_fragment.arrays.cast import read_as, widened
from lsm_fragment.arrays.hashing import combine
from lsm_fragment.arrays.types import storage_type
from lsm_fragment.container.block import Block
from lsm_fragment.container.text_stream import text_stream


class Conversion:
    """The way of one input's rows into the table."""

    def __init__(
        self,
        name: str,
        ours: InputSchema,
        table: pa.Schema,
        dropped: DroppedRows | None = None,
        converted: ConvertedRows | None = None,
    ) -> None:
        """name: the input's. ours: its schema. dropped, converted: None if all rows stay, or as they are."""
        self._name = name
        self._ours = ours
        self._table = table
        self._dropped = dropped
        self._converted = converted

    @property
    def is_as_wide(self) -> bool:
        """Whether every column is stored in the table's type, and the table has dropped none."""
        return self._ours.is_as_wide

    @property
    def leaves_rows_out(self) -> bool:
        return self._dropped is not None

    @property
    def dropped_rows(self) -> int:
        """Number of rows that are not written again."""
        return 0 if self._dropped is None else self._dropped.rows

    def is_wanted(self, column: str) -> bool:
        """Returns whether the table has the column. Uses the shared schema, as copies of thousands of names
        would add up."""
        return bool(self._table.get_field_index(column) >= 0)

    def table_type(self, column: str) -> pa.DataType:
        """Returns the storage type that a column has in the table."""
        return storage_type(self._table.field(column).type)

    def own_type(self, column: str) -> pa.DataType:
        """Returns the storage type in which the input has a column."""
        return storage_type(self._ours.schema.field(column).type)

    def stored_type(self, column: str, dtype: pa.DataType) -> pa.DataType:
        """Returns the storage type to decode a column in that is of `dtype` in the table."""
        if self._ours.is_as_wide:
            return dtype
        stored = self.own_type(column)
        return dtype if pt.is_null(stored) else stored

    def keeps_values(self, column: str, dtype: pa.DataType) -> bool:
        """Returns whether the column's values are written as they are stored."""
        return self._converted is None and self.stored_type(column, dtype) == dtype

    def begin_group(self, rows: int) -> None:
        """Begins the input's next row group, which has `rows` rows."""
        if self._dropped is not None:
            self._dropped.begin_group(rows)

    def is_whole(self, group: int) -> bool:
        """Returns whether all rows of a row group are written."""
        return self._dropped is None or self._dropped.is_whole(group)

    def is_gone(self, group: int) -> bool:
        """Returns whether no row of a row group is written."""
        return self._dropped is not None and self._dropped.is_gone(group)

    def written_rows(
        self, array: pa.Array, column: str, dtype: pa.DataType, group: int, *, is_first: bool
    ) -> pa.Array:
        """Returns a chunk's rows to be written, in the table's type `dtype`; hashes the others.

        is_first: whether it is the row group's first chunk.
        """
        stored = self.stored_type(column, dtype)
        if self._dropped is not None:
            array = self._dropped.split(group, column, array)
        if self._converted is None:
            return (
                array if stored == dtype else widened(array, dtype)
            )  # to the same numbers and texts
        if is_first:
            self._converted.begin_group(len(array))
        is_written = self.is_wanted(column)
        converted = self._convert(array, column) if is_written else array
        self._converted.note(group, column, array, converted if is_written else None)
        return converted

    def written_end(self, rows: int, row_hash: int) -> tuple[int, int]:
        """Returns the number and the hash of the rows to be written, by those of all rows.

        Raises `MergeCheckError` if the rows do not hash as the footer says.
        """
        if self._dropped is not None:
            rows -= self._dropped.rows
            row_hash = combine(row_hash, -self._dropped.row_hash())
        if self._converted is None:
            return rows, row_hash
        if self._converted.stored_hash() != row_hash:
            raise MergeCheckError(
                f"{self._name}: its rows hash to {self._converted.stored_hash():016x} as they were read, to "
                f"{row_hash:016x} by its footer; nothing was written, the inputs are untouched"
            )
        return rows, self._converted.written_hash()

    def spill(self) -> int:
        """Moves row hashes to disk. Returns how many bytes that frees."""
        parts = [part for part in (self._dropped, self._converted) if part is not None]
        return sum(part.spill() for part in parts)

    def close(self) -> None:
        for part in (self._dropped, self._converted):
            if part is not None:
                part.close()

    def _convert(self, array: pa.Array, column: str) -> pa.Array:
        stored, wanted = self._ours.schema.field(column).type, self._table.field(column).type
        if pt.is_null(stored):
            return array
        try:
            return read_as(array, stored, wanted)
        except pa.ArrowInvalid as error:
            raise InputMismatchError(
                f"{self._name}: column {column!r}: a value of {array.type} has no place in {wanted}, which "
                f"the table has now: {error}",
                name=self._name,
            ) from error


class Decoder:
    """Decodes the chunks of one input into rows to be written.

    It holds the memory of blocks that were read, and of decoded rows until they are reserved elsewhere: then
    the reader that has passed them on calls `free`.
    """

    def __init__(
        self,
        memory: Reservation,
        conversion: Conversion,
        watch: Stopwatch,
        ahead: DecodingAhead | None,
    ) -> None:
        """memory: grows by `payload_bytes` of every block that is read. ahead: None for no decoding ahead."""
        self.conversion = conversion
        self.watch = watch
        self._memory = memory
        self._ahead = ahead

    def chunk(
        self, block: Block, column: str, dtype: pa.DataType, *, keep_templates: bool = False
    ) -> Decoding:
        """Returns the decoding of a chunk that was just read, with its memory.

        dtype: the column's in the table. keep_templates: whether to, where values are not converted;
        words are kept as well, unless rows are left out.
        """
        memory = self._memory.split(payload_bytes(block.header))
        stored = self.conversion.stored_type(column, dtype)
        keep_templates = keep_templates and self.conversion.keeps_values(column, dtype)
        return Decoding(
            block,
            stored,
            memory,
            keep_templates=keep_templates,
            keep_words=keep_templates and not self.conversion.leaves_rows_out,
        )

    def streamed(
        self, block: Block, column: str, dtype: pa.DataType, rows: DecodedRows
    ) -> Decoding | None:
        """Returns the decoding of a chunk that was just read, some rows at a time; None if that would save
        little, if `rows` have no memory for it, or if rows are left out or converted."""
        if self.conversion.leaves_rows_out or not self.conversion.keeps_values(column, dtype):
            return None
        stream = text_stream(block, dtype)
        if stream is None or (memory := rows.room_for(stream.held_bytes)) is None:
            return None
        self._memory.shrink(payload_bytes(block.header))
        return Decoding(block, dtype, memory, stream=stream)

    @property
    def decodes_ahead(self) -> bool:
        return self._ahead is not None

    def may_begin(self, chunks: int = 1) -> bool:
        """Returns whether there are threads, and memory, to decode chunks before they are needed."""
        return self._ahead is not None and self._ahead.has_room(chunks)

    def begin(self, chunk: Decoding) -> None:
        """Decodes a chunk ahead, if `may_begin`."""
        if self._ahead is not None:
            self._ahead.begin(chunk)

    def rows(
        self,
        chunk: Decoding,
        column: str,
        dtype: pa.DataType,
        group: int,
        *,
        is_first: bool = False,
    ) -> pa.Array:
        """Returns a chunk's rows to be written, in the table's type `dtype`.

        is_first: whether it is the row group's first chunk.
        """
        try:
            array = chunk.result(self.watch)
        finally:
            if not chunk.is_stream:
                self._memory.absorb(chunk.memory)
        return self.conversion.written_rows(array, column, dtype, group, is_first=is_first)

    def free(self) -> None:
        """Frees the memory of all blocks that were read, and of rows that were decoded."""
        self._memory.free()
