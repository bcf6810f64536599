"""Makes blocks and chunks: encodes, compresses, adds checksums (SPEC sections 3 and 5)."""

from __future__ import annotations

from typing import Final, Protocol

import pyarrow as pa
from msgspec import Struct
from pyarrow import types as pt

from lsm_fragment.arrays.joining import in_order_of_use
from lsm_fragment.arrays.sizes import total_bytes
from lsm_fragment.arrays.templated import TextSurvey, survey_texts
from lsm_fragment.arrays.types import is_templated, may_stay_coded, value_type
from lsm_fragment.arrays.worded import Words
from lsm_fragment.blocks import layout
from lsm_fragment.blocks.compression import Part, compress
from lsm_fragment.blocks.layout import BlockKind, Codec
from lsm_fragment.blocks.parts import payload_checksum
from lsm_fragment.container.footer import ChunkStats
from lsm_fragment.encodings.coding import EncodedArray, encode_array
from lsm_fragment.encodings.dictionary import Coding
from lsm_fragment.encodings.fitting import check_parts, compress_fitting
from lsm_fragment.encodings.node import Encoding
from lsm_fragment.encodings.template import Precedent
from lsm_fragment.keys.bounds import Value
from lsm_fragment.keys.extremes import min_max
from lsm_fragment.limits import max_metadata_bytes

_RAW_PAYLOAD_LEVEL: Final = 0


class ByteSink(Protocol):
    """A sink for a fragment's bytes, in order; seeking is not required."""

    def write(self, data: bytes, /) -> object: ...


class Chunk(Struct, frozen=True, kw_only=True):
    """A chunk ready to be written as either kind ('K' or 'D'), with its statistics."""

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
        """Returns the parts of the block in write order."""
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
            offset=offset,
            stored_bytes=stored_bytes,
            raw_bytes=self.raw_bytes,
            decoded_bytes=self.decoded_bytes,
            null_count=self.null_count,
            encoding=self.encoding,
            min=self.min,
            max=self.max,
        )


class EncodedChunk(Struct, frozen=True):
    """A chunk before its compression, which other threads may do while the column's next chunk is encoded."""

    array: pa.Array
    encoded: EncodedArray
    compared: pa.Array
    """The values among which the least and the greatest are."""

    def compressed(self, level: int) -> Chunk:
        """Raises `LimitError` if readers would refuse the chunk."""
        array = self.array
        encoded, codec, stored = compress_fitting(self.encoded, array, level)
        low, high = min_max(self.compared)
        return Chunk(
            meta=encoded.meta,
            codec=codec,
            stored=stored,
            rows=len(array),
            raw_bytes=encoded.raw_bytes,
            decoded_bytes=_decoded_bytes(array, encoded),
            encoding=encoded.encoding.name,
            null_count=array.null_count,
            min=low,
            max=high,
        )


def encode_chunk(
    array: pa.Array,
    *,
    coding: Coding = Coding.OPEN,
    seen: TextSurvey | None = None,
    words: Words | None = None,
    precedent: Precedent | None = None,
) -> EncodedChunk:
    """Encodes a storage array, possibly dictionary-coded or templated.

    coding: `Coding.FINAL` for the result of `lsm_fragment.encodings.dictionary.by_dictionary`. seen: the
    survey of a final templated array. words: of strings, if they are numbered. precedent: what became of the
    column's last chunks, if they are encoded one after the other. Raises `LimitError` for a type with more
    parts than readers accept.
    """
    is_coded, has_templates = pt.is_dictionary(array.type), is_templated(array.type)
    if (is_coded or has_templates) and coding is not Coding.FINAL:
        array, seen = in_order_of_use(array), None
    compared = array.dictionary if is_coded else array
    if has_templates:
        seen = seen or survey_texts(array)
        compared = seen.extremes
    encoded = encode_array(
        array, is_decided=coding is not Coding.OPEN, seen=seen, words=words, precedent=precedent
    )
    check_parts(encoded)
    return EncodedChunk(array, encoded, compared)


def make_chunk(array: pa.Array, *, level: int, coding: Coding = Coding.OPEN) -> Chunk:
    """Encodes and compresses a storage array, as `encode_chunk` does.

    level: zstd's; 0 for no compression. Raises `LimitError` if readers would refuse the chunk.
    """
    return encode_chunk(array, coding=coding).compressed(level)


def _decoded_bytes(array: pa.Array, encoded: EncodedArray) -> int:
    """Returns the size of the decoded values, as defined in SPEC section 7.

    It depends only on the values and their encoding, not on the form of the array.
    """
    if encoded.encoding is Encoding.TEMPLATE:
        return encoded.text_bytes + 4 * len(array)
    if encoded.encoding is Encoding.DICTIONARY and may_stay_coded(value_type(array.type)):
        return 4 * len(array) + encoded.raw_bytes + encoded.text_bytes
    return total_bytes(array)


def make_block(kind: BlockKind, payload: bytes, *, level: int = _RAW_PAYLOAD_LEVEL) -> bytes:
    """Makes a block other than a chunk: header, column start, page or directory."""
    parts = (Part(memoryview(payload)),)
    codec, stored = compress(parts, level)
    if len(payload) > max_metadata_bytes(len(stored)):  # readers would refuse the ratio
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
