"""Reads one input of a merge: a fragment that is streamed front to back by a single GET."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from compactor.merge.errors import InputMismatchError
from compactor.merge.inputs.changed_rows import ConvertedRows, DroppedRows
from compactor.merge.inputs.column_reader import ColumnReader
from compactor.merge.inputs.conversion import Conversion, Decoder
from compactor.merge.inputs.copied import CopiedRowGroups
from compactor.merge.inputs.decoding import LAP, DecodingAhead, payload_bytes
from compactor.merge.inputs.input_fragment import InputFragment
from compactor.merge.inputs.key_reader import InputSettings, KeyReader
from compactor.merge.inputs.loaded_rows import LoadedGroup
from compactor.merge.inputs.schemas import InputSchema, InputSchemas
from compactor.resources.fetch import ClosableSource
from compactor.resources.merge_stages import DECODE
from compactor.resources.near_source import NearSource
from compactor.resources.reservation import Reservation
from compactor.resources.stopwatch import Stopwatch
from compactor.table.damage import check_is_logged
from lsm_fragment.blocks.layout import BlockHeader
from lsm_fragment.container.footer import ChunkStats
from lsm_fragment.container.stream_reader import AHEAD_BYTES, FragmentStream, TakeColumn
from lsm_fragment.keys.sort_schema import SortSchema


class _Readers(NamedTuple):
    """The readers of an input that is open."""

    stream: FragmentStream
    conversion: Conversion
    keys: KeyReader
    columns: ColumnReader


class MergeInput:
    """One input: keys first, then column by column."""

    def __init__(
        self,
        fragment: InputFragment,
        source: ClosableSource,
        settings: InputSettings,
        watch: Stopwatch,
        ahead: DecodingAhead | None = None,
    ) -> None:
        """ahead: the threads that decode chunks ahead, if there are any."""
        self.fragment = fragment
        self._source = source
        self._settings = settings
        self._watch = watch
        self._ahead = ahead
        self._memory = Reservation(settings.budget, DECODE)
        """The memory of blocks that were read, and of decoded rows until they are reserved elsewhere."""
        self.keys = settings.new_rows()
        """Sort columns that are read and not merged yet."""
        self._readers: _Readers | None = None

    @property
    def name(self) -> str:
        return self.fragment.name

    @property
    def columns(self) -> ColumnReader:
        """The reader of columns, once all keys are loaded."""
        return self._open.columns

    @property
    def _open(self) -> _Readers:
        assert self._readers is not None, "open() comes first"
        return self._readers

    def open(self, sort: SortSchema, schemas: InputSchemas) -> None:
        """Reads the header. Raises `InputMismatchError` if it does not fit `sort` and the table's schema."""
        stream = FragmentStream(
            self._source,
            self.name,
            before_payload=self._before_payload,
            ahead_bytes=self._source.piece_bytes
            if isinstance(self._source, NearSource)
            else AHEAD_BYTES,
        )
        self._memory.free()
        header = stream.header
        if header.sort != sort:
            raise InputMismatchError(
                f"{self.name}: sorted by {', '.join(map(str, header.sort))} where the table sorts by "
                + ", ".join(map(str, sort)),
                name=self.name,
            )
        ours = schemas.of(header, self.name)
        if header.schema is not ours.schema:
            stream.header = header.with_schema(ours.schema)
        conversion = self._conversion(ours, schemas)
        decoder = Decoder(self._memory, conversion, self._watch, self._ahead)
        keys = KeyReader(self.fragment, stream, decoder, self.keys, self._settings)
        columns = ColumnReader(stream, decoder, self._settings.new_rows())
        self._readers = _Readers(stream, conversion, keys, columns)

    def load_keys(self) -> LoadedGroup | None:
        """Adds the next row group's sort columns to `keys`; None after the last with rows to be written."""
        loaded = self._open.keys.load()
        if loaded is None:
            with self._watch.on(LAP):
                self.columns.next_column()
        return loaded

    def row_bytes(self, group_rows: int) -> int:
        """Estimates the bytes of a row in the heaviest column, for a row group of `group_rows` rows."""
        return self._open.keys.row_bytes(group_rows)

    def finish(self, copied: CopiedRowGroups | None = None) -> tuple[int, int]:
        """Reads footer and trailer. Returns the number and the row hash of the rows to be written.

        copied: takes the footer's statistics of copied row groups.
        Raises `InputMismatchError` if the input is not the fragment that the log describes.
        """
        if copied is None:
            footer = self._open.stream.finish_quickly()
        else:
            directory = self._open.stream.finish(self._taking(copied))
            copied.take_row_hashes(directory)
            footer = directory.head
        self._memory.free()
        check_is_logged(self.name, footer, self.fragment, InputMismatchError)
        return self._open.conversion.written_end(footer.rows, footer.row_hash)

    @property
    def dropped_rows(self) -> int:
        """Number of rows that are not written again."""
        return self._open.conversion.dropped_rows

    def spill_row_hashes(self) -> int:
        """Moves hashes of dropped and converted rows to disk. Returns how many bytes that frees."""
        return 0 if self._readers is None else self._readers.conversion.spill()

    @property
    def spillable_bytes(self) -> int:
        size = self.keys.spillable_bytes
        if self._readers is not None:
            size += self._readers.keys.spillable_bytes + self._readers.columns.spillable_bytes
        return size

    def spill(self) -> int:
        """Moves decoded rows to disk. Returns how many bytes that frees."""
        freed = self.keys.spill()
        if self._readers is not None:
            freed += self._readers.columns.spill() + self._readers.keys.spill()
        return freed

    def close(self) -> None:
        """Releases all memory. No thread may be decoding."""
        self.keys.clear()
        if self._readers is not None:
            self._readers.keys.clear()
            self._readers.columns.clear()
            self._readers.conversion.close()
        self._memory.free()

    def _conversion(self, ours: InputSchema, schemas: InputSchemas) -> Conversion:
        """Returns the way of the input's rows into the table."""
        budget, disk = self._settings.budget, self._settings.disk
        read_dropped = self.fragment.read_dropped
        bits = None if read_dropped is None else read_dropped()
        return Conversion(
            self.name,
            ours,
            schemas.table,
            None if bits is None else DroppedRows(bits, budget, disk),
            ConvertedRows(budget, disk) if ours.is_converted else None,
        )

    def _before_payload(self, header: BlockHeader) -> None:
        """Reserves memory for a block's payload, stored and decompressed, before it takes any."""
        self._memory.grow(payload_bytes(header))

    def _taking(self, copied: CopiedRowGroups) -> TakeColumn:
        """Returns a function that takes the statistics of copied row groups, and frees the page that has
        them."""

        def take(name: str, chunks: Sequence[ChunkStats]) -> None:
            copied.take_column(name, chunks)
            self._memory.free()

        return take
