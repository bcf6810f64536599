"""Reads blocks from a forward-only source, and makes them from arrays (SPEC section 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, cast

import pyarrow as pa
import xxhash
from pyarrow import types as pt

from lsm_fragment.arrays.joining import in_order_of_use
from lsm_fragment.arrays.sizes import total_bytes
from lsm_fragment.arrays.templated import TextSurvey, survey_texts
from lsm_fragment.arrays.types import is_templated, may_stay_coded, value_type
from lsm_fragment.blocks import layout
from lsm_fragment.blocks.compression import Part, compress, decompress
from lsm_fragment.blocks.layout import BLOCK_HEADER_BYTES, BlockHeader, BlockKind, Codec
from lsm_fragment.blocks.parts import check_payload, payload_checksum
from lsm_fragment.decode import decode_array
from lsm_fragment.encode import Coding, EncodedArray
from lsm_fragment.encodings.node import Encoding
from lsm_fragment.errors import CorruptFragmentError
from lsm_fragment.fitting import encode_fitting
from lsm_fragment.footer import ChunkStats
from lsm_fragment.keys.bounds import Value
from lsm_fragment.keys.extremes import min_max
from lsm_fragment.limits import most_chunk_bytes, most_metadata_bytes, too_large
from lsm_fragment.native.decode import root_of
from lsm_fragment.value_errors import OF_VALUES

_STEP_BYTES: Final = 16 << 20
_SKIPPED_BYTES: Final = 1 << 20
_RAW_PAYLOAD_LEVEL: Final = 0


class ByteSource(Protocol):
    """A forward-only source: up to `max_bytes` bytes (at least 1) per call, b"" only at the end."""

    def read(self, max_bytes: int, /) -> bytes: ...


class MemorySource:
    """A forward-only source of bytes in memory, which are not copied."""

    def __init__(self, data: bytes) -> None:
        self._left = memoryview(data)

    def read(self, max_bytes: int, /) -> bytes:
        piece, self._left = self._left[:max_bytes], self._left[max_bytes:]
        return cast("bytes", piece)


class ByteSink(Protocol):
    """A sink for a fragment's bytes, in order; it need not be seekable."""

    def write(self, data: bytes, /) -> object: ...


class Block(NamedTuple):
    """A block as read: header and checksum of the payload are checked, the payload is still compressed.

    Of `BlockReader.read_beginning`, the payload is not checked and may end early.
    """

    header: BlockHeader
    meta: bytes
    stored: bytes
    offset: int
    name: str
    """The fragment's name, for errors."""
    column: str | None = None

    def raw(self) -> bytes:
        """Decompresses the payload. Raises `CorruptFragmentError`."""
        return bytes(self._decompressed(most_metadata_bytes(self.header.stored_bytes)))

    def _decompressed(self, most_bytes: int) -> bytes | memoryview:
        self.check_raw_bytes(most_bytes)
        try:
            return decompress(self.header.codec, self.stored, self.header.raw_bytes)
        except ValueError as error:
            raise self.fault(str(error)) from error

    def check_raw_bytes(self, most_bytes: int) -> None:
        """Raises `CorruptFragmentError` if the payload claims to take more than so many bytes."""
        if self.header.raw_bytes > most_bytes:
            raise self.fault(too_large(self.header.raw_bytes, most_bytes))

    def decode(
        self,
        dtype: pa.DataType,
        *,
        keep_dictionary: bool = False,
        keep_templates: bool = False,
        reserve: Callable[[int], None] | None = None,
    ) -> pa.Array:
        """Decodes the chunk to a storage array of `dtype`. Raises `CorruptFragmentError`.

        Chunks of only nulls decode as any type. keep_dictionary, keep_templates, reserve: see
        `lsm_fragment.decode.decode_array`.
        """
        most_bytes = most_chunk_bytes(self.header.stored_bytes)
        raw = self._decompressed(most_bytes)
        refusals: list[Exception] = []

        def ask(size: int) -> None:
            assert reserve is not None
            try:
                reserve(size)
            except Exception as error:
                refusals.append(error)
                raise

        try:
            return decode_array(
                self.meta,
                raw,
                dtype,
                self.header.rows,
                keep_dictionary=keep_dictionary,
                keep_templates=keep_templates,
                most_bytes=most_bytes,
                reserve=None if reserve is None else ask,
            )
        except (ValueError, OverflowError, *OF_VALUES) as error:
            if (
                refusals
            ):  # The chunk is not to blame: a merge waits for other work before it reserves.
                raise
            raise self._undecodable(error) from error

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Explains what checking or decompressing the payload raises. Raises `CorruptFragmentError`."""
        try:
            yield
        except ValueError as error:
            raise self.fault(str(error)) from error

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Explains what decoding raises. Raises `CorruptFragmentError`."""
        try:
            yield
        except (ValueError, OverflowError, *OF_VALUES) as error:
            raise self._undecodable(error) from error

    @property
    def encoding(self) -> str:
        """The name of the root node's encoding."""
        return self._root()[0]

    def parts(self) -> tuple[bytes, bytes, bytes]:
        """Returns the block as it was read: header, meta and payload."""
        return layout.repack_block_header(self.header), self.meta, self.stored

    def stats(self, *, offset: int) -> ChunkStats:
        """Returns the footer's entry for this chunk at `offset`, without what only its own footer knows."""
        header, (encoding, null_count) = self.header, self._root()
        return ChunkStats(
            offset, header.block_bytes, header.raw_bytes, 0, null_count, encoding, None, None
        )

    def _root(self) -> tuple[str, int]:
        """Returns encoding and number of nulls of the root node."""
        try:
            encoding, null_count = root_of(self.meta)
        except ValueError as error:
            raise self.fault(f"the encoding tree is damaged: {error}") from error
        return Encoding(encoding).name, null_count

    def _undecodable(self, error: Exception) -> CorruptFragmentError:
        cause = str(error) or "its values take more memory than there is"
        return self.fault(f"the chunk does not decode: {cause}")

    def fault(self, cause: str) -> CorruptFragmentError:
        return CorruptFragmentError(cause, name=self.name, offset=self.offset, column=self.column)


class BlockReader:
    """A reader of blocks, one after the other, that knows its offset."""

    def __init__(
        self,
        source: ByteSource,
        name: str,
        *,
        offset: int = 0,
        before_payload: Callable[[BlockHeader], None] = lambda _header: None,
        ahead_bytes: int = 0,
    ) -> None:
        """before_payload: called with each block's checked header before its payload takes memory.

        ahead_bytes: the most bytes that are read with the beginning of a block or with its end, of what is at
        hand. What follows is short, and a request of its own costs more than its bytes.
        """
        self._source = source
        self._before_payload = before_payload
        self._ahead_bytes = max(ahead_bytes, BLOCK_HEADER_BYTES)
        self.name = name
        self.offset = offset
        self._ahead = b""
        self._ahead_at = 0
        """How many of the bytes read ahead were taken."""

    def read_prologue(self) -> None:
        """Reads the prologue.

        Raises `NotAFragmentError`, `UnsupportedVersionError` or `CorruptFragmentError`.
        """
        layout.check_prologue(self._read_up_to(layout.PROLOGUE_BYTES), name=self.name)

    def read_block(self, column: str | None = None) -> Block:
        """Reads the next block. Raises `CorruptFragmentError`, also if the source ends."""
        offset = self.offset
        header, meta = self.read_head(column)
        self._before_payload(header)
        stored = self.read_exactly(header.stored_bytes, column)
        block = Block(header, meta, stored, offset, self.name, column)
        try:
            check_payload(header, stored)
        except ValueError as error:
            raise block.fault(str(error)) from error
        return block

    def read_beginning(self, column: str) -> Block:
        """Returns the next block with as much of its payload as the source has, which is not checked.

        Raises `CorruptFragmentError`.
        """
        offset = self.offset
        header, meta = self.read_head(column)
        stored = self._read_up_to(header.stored_bytes)
        return Block(header, meta, stored, offset, self.name, column)

    def read_head(self, column: str | None = None) -> tuple[BlockHeader, bytes]:
        """Reads header and meta of the next block, and no payload. Raises `CorruptFragmentError`."""
        offset = self.offset
        self._look_ahead()
        head = self.read_exactly(BLOCK_HEADER_BYTES, column)
        header = layout.unpack_block_header(head, name=self.name, offset=offset)
        meta = self.read_exactly(header.meta_bytes, column)
        layout.check_block_header(header, head, meta, name=self.name, offset=offset)
        return header, meta

    def next_kind(self) -> int:
        """Returns the kind of the next block, which need not be one that this reader knows."""
        self._look_ahead()
        if len(self._ahead) - self._ahead_at < BLOCK_HEADER_BYTES:
            self.read_exactly(BLOCK_HEADER_BYTES)  # raises
        return self._ahead[self._ahead_at]

    def skip_block(self) -> None:
        """Reads a block of any kind and checks its checksums, but never holds its payload."""
        offset = self.offset
        self._look_ahead()
        head = self.read_exactly(BLOCK_HEADER_BYTES)
        block = layout.unpack_skipped(head, name=self.name, offset=offset)
        meta = self.read_exactly(block.meta_bytes)
        layout.check_header_checksum(
            block.header_checksum, head, meta, name=self.name, offset=offset
        )
        payload, left = xxhash.xxh3_64(), block.stored_bytes
        while left:
            payload.update(self.read_exactly(min(left, _SKIPPED_BYTES)))
            left -= min(left, _SKIPPED_BYTES)
        if payload.intdigest() != block.payload_checksum:
            raise CorruptFragmentError(
                "the payload's checksum does not match", name=self.name, offset=offset
            )

    def read_exactly(self, size: int, column: str | None = None) -> bytes:
        data = self._read_up_to(size)
        if len(data) < size:
            raise CorruptFragmentError(
                f"truncated: {size} bytes expected, the object ends after {len(data)}",
                name=self.name,
                offset=self.offset - len(data),
                column=column,
            )
        return data

    def at_end(self) -> bool:
        """Returns whether nothing follows; consumes a byte if something does."""
        return self._ahead_at == len(self._ahead) and not self._source.read(1)

    def _look_ahead(self) -> None:
        """Reads ahead until there is a block's header, unless the source ends."""
        while (held := len(self._ahead) - self._ahead_at) < BLOCK_HEADER_BYTES:
            piece = self._source.read(self._ahead_bytes - held)
            if not piece:
                return
            rest = self._ahead[self._ahead_at :]
            self._ahead, self._ahead_at = b"".join((rest, piece)) if held else piece, 0

    def _read_up_to(self, size: int) -> bytes:
        start, end = self._ahead_at, self._ahead_at + size
        if end <= len(self._ahead):
            self._ahead_at = end
            self.offset += size
            return self._ahead[start:end]
        first = self._ahead[start:]
        self._ahead, self._ahead_at = b"", 0
        if size > _STEP_BYTES:
            return self._read_large(first, size)
        pieces = [first] if first else []
        left = size - len(first)
        while left and (piece := self._source.read(max(left, self._ahead_bytes))):
            pieces.append(piece[:left])
            if left < len(piece):
                self._ahead, self._ahead_at = piece, left
            left -= len(pieces[-1])
        self.offset += size - left
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read_large(self, first: bytes, size: int) -> bytes:
        """Reads a large payload into memory that grows with the data that arrives, and never holds it
        twice. first: its bytes that were read ahead."""
        data = bytearray(first)
        while len(data) < size and (piece := self._source.read(min(size - len(data), _STEP_BYTES))):
            data += piece
        self.offset += len(data)
        return cast("bytes", data)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk that is ready to be written as either kind ('K' or 'D'), with its statistics."""

    meta: bytes
    codec: Codec
    stored: bytes
    rows: int
    raw_bytes: int
    decoded_bytes: int
    encoding: str
    null_count: int
    min: Value
    max: Value

    def parts(self, kind: BlockKind) -> tuple[bytes, bytes, bytes]:
        """Returns the parts of the block in the order in which they are written."""
        head = layout.pack_block_header(
            kind,
            self.codec,
            rows=self.rows,
            meta=self.meta,
            stored_bytes=len(self.stored),
            raw_bytes=self.raw_bytes,
            payload_checksum=payload_checksum(self.codec, self.stored),
        )
        return head, self.meta, self.stored

    def block(self, kind: BlockKind) -> bytes:
        return b"".join(self.parts(kind))

    def stats(self, *, offset: int, stored_bytes: int) -> ChunkStats:
        """Returns the footer's entry for this chunk, whose block is at `offset` and has `stored_bytes`."""
        return ChunkStats(
            offset,
            stored_bytes,
            self.raw_bytes,
            self.decoded_bytes,
            self.null_count,
            self.encoding,
            self.min,
            self.max,
        )


def make_chunk(
    array: pa.Array, *, level: int, coding: Coding = Coding.OPEN, seen: TextSurvey | None = None
) -> Chunk:
    """Encodes and compresses a storage array, possibly dictionary-coded or templated.

    level: zstd's; 0 for no compression.
    coding: `Coding.FINAL` if the array went through `lsm_fragment.encode.by_dictionary`. seen: what is
    known of a templated array that is final. Raises `LimitError` if readers would refuse it.
    """
    is_coded, has_templates = pt.is_dictionary(array.type), is_templated(array.type)
    if (is_coded or has_templates) and coding is not Coding.FINAL:
        array, seen = in_order_of_use(array), None
    compared = array.dictionary if is_coded else array
    if has_templates:
        seen = seen or survey_texts(array)
        compared = seen.extremes
    is_decided = coding is not Coding.OPEN
    encoded, codec, stored = encode_fitting(array, level=level, is_decided=is_decided, seen=seen)
    low, high = min_max(compared)
    return Chunk(
        encoded.meta,
        codec,
        stored,
        len(array),
        encoded.raw_bytes,
        _decoded_bytes(array, encoded),
        encoded.encoding.name,
        array.null_count,
        low,
        high,
    )


def _decoded_bytes(array: pa.Array, encoded: EncodedArray) -> int:
    """Returns the bytes that the values take decoded, as SPEC section 7 counts them.

    They depend only on the values and how they are stored, not on how the array holds them.
    """
    if encoded.encoding is Encoding.TEMPLATE:
        return encoded.text_bytes + 4 * len(array)
    if encoded.encoding is Encoding.DICTIONARY and may_stay_coded(value_type(array.type)):
        return 4 * len(array) + encoded.raw_bytes + encoded.text_bytes
    return total_bytes(array)


def make_block(kind: BlockKind, payload: bytes, *, level: int = _RAW_PAYLOAD_LEVEL) -> bytes:
    """Makes a block that is not a chunk: header, column start, page or directory."""
    parts = (Part(memoryview(payload)),)
    codec, stored = compress(parts, level)
    if len(payload) > most_metadata_bytes(len(stored)):  # readers would take it for a bomb
        codec, stored = compress(parts, _RAW_PAYLOAD_LEVEL)
    head = layout.pack_block_header(
        kind,
        codec,
        rows=0,
        meta=b"",
        stored_bytes=len(stored),
        raw_bytes=len(payload),
        payload_checksum=payload_checksum(codec, stored),
    )
    return head + stored
