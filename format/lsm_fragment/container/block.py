"""A block as read: its header, its stored payload, and how to decode it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa

from lsm_fragment.blocks import layout
from lsm_fragment.blocks.compression import decompress
from lsm_fragment.blocks.layout import BlockHeader
from lsm_fragment.container.footer import ChunkStats
from lsm_fragment.encodings.coding import decode_array
from lsm_fragment.encodings.node import Encoding
from lsm_fragment.errors import CorruptFragmentError
from lsm_fragment.limits import chunk_limit_bytes, max_metadata_bytes, too_large
from lsm_fragment.native.encodings.decode import root_of
from lsm_fragment.value_errors import OF_VALUES


class Block(NamedTuple):
    """A block as read: header and payload checksum are verified, the payload is still compressed.

    From `BlockReader.read_beginning`, the payload is not verified and may be incomplete.
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
        return bytes(self._decompressed(max_metadata_bytes(self.header.stored_bytes)))

    def _decompressed(self, max_bytes: int) -> bytes | memoryview:
        self.check_raw_bytes(max_bytes)
        try:
            return decompress(self.header.codec, self.stored, self.header.raw_bytes)
        except ValueError as error:
            raise self.fault(str(error)) from error

    def check_raw_bytes(self, max_bytes: int) -> None:
        """Raises `CorruptFragmentError` if the header states a larger raw payload than `max_bytes`."""
        if self.header.raw_bytes > max_bytes:
            raise self.fault(too_large(self.header.raw_bytes, max_bytes))

    def decode(
        self,
        dtype: pa.DataType,
        *,
        keep_dictionary: bool = False,
        keep_templates: bool = False,
        keep_words: bool = False,
        reserve: Callable[[int], None] | None = None,
    ) -> pa.Array:
        """Decodes the chunk to a storage array of `dtype`. Raises `CorruptFragmentError`.

        Chunks of only nulls decode as any type. keep_dictionary, keep_templates, keep_words, reserve: see
        `lsm_fragment.encodings.coding.decode_array`.
        """
        max_bytes = chunk_limit_bytes(self.header.stored_bytes)
        raw = self._decompressed(max_bytes)
        is_refused = False  # not the error itself: its frames have this one, which would keep them in a cycle

        def ask(size: int) -> None:
            nonlocal is_refused
            assert reserve is not None
            try:
                reserve(size)
            except Exception:
                is_refused = True
                raise

        try:
            return decode_array(
                self.meta,
                raw,
                dtype,
                self.header.rows,
                keep_dictionary=keep_dictionary,
                keep_templates=keep_templates,
                keep_words=keep_words,
                max_bytes=max_bytes,
                reserve=None if reserve is None else ask,
            )
        except (ValueError, OverflowError, *OF_VALUES) as error:
            if is_refused:
                raise  # no fault of the chunk: a merge waits for memory before it reserves again
            raise self._undecodable(error) from error

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turns errors of checking or decompressing the payload into `CorruptFragmentError`."""
        try:
            yield
        except ValueError as error:
            raise self.fault(str(error)) from error

    @contextmanager
    def decoding(self) -> Iterator[None]:
        """Turns errors of decoding into `CorruptFragmentError`."""
        try:
            yield
        except (ValueError, OverflowError, *OF_VALUES) as error:
            raise self._undecodable(error) from error

    @property
    def encoding(self) -> str:
        """The name of the root node's encoding."""
        return self._root()[0]

    def parts(self) -> tuple[bytes, bytes, bytes]:
        """Returns the block as read: header, meta and payload."""
        return layout.repack_block_header(self.header), self.meta, self.stored

    def stats(self, *, offset: int) -> ChunkStats:
        """Returns the footer's entry for this chunk at `offset`, without the values that only its own footer
        has."""
        header, (encoding, null_count) = self.header, self._root()
        return ChunkStats(
            offset=offset,
            stored_bytes=header.block_bytes,
            raw_bytes=header.raw_bytes,
            decoded_bytes=0,
            null_count=null_count,
            encoding=encoding,
            min=None,
            max=None,
        )

    def _root(self) -> tuple[str, int]:
        """Returns the encoding and the null count of the root node."""
        try:
            encoding, null_count = root_of(self.meta)
        except ValueError as error:
            raise self.fault(f"the encoding tree is damaged: {error}") from error
        return Encoding(encoding).name, null_count

    def _undecodable(self, error: Exception) -> CorruptFragmentError:
        cause = str(error) or "there is not enough memory for its values"
        return self.fault(f"the chunk does not decode: {cause}")

    def fault(self, cause: str) -> CorruptFragmentError:
        return CorruptFragmentError(cause, name=self.name, offset=self.offset, column=self.column)
