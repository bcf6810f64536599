"""Reads TEMPLATE chunks only as far as a query needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa

from lsm_fragment.arrays.templated import Bits
from lsm_fragment.blocks.compression import decompress, decompress_head, decompress_parts
from lsm_fragment.blocks.parts import PayloadPart, checked_parts
from lsm_fragment.container.block import Block
from lsm_fragment.encodings.node import Encoding
from lsm_fragment.encodings.template import TemplateHead
from lsm_fragment.encodings.template_decoder import TemplateDecoder, template_counts
from lsm_fragment.limits import chunk_limit_bytes


class TemplateChunk:
    """The strings of one chunk: decodes templates and codes first, and variables when text is needed. Keeps
    variables, but not text.

    If the payload has several parts, those with variables are neither read nor verified before.
    """

    def __init__(
        self, block: Block, dtype: pa.DataType, read_more: Callable[[int, int], bytes] | None = None
    ) -> None:
        """block: one that `has_templates`. dtype: the storage type of the strings.

        read_more: returns bytes of the payload, by offset and length. Required if `block` has only the
        beginning of its payload, with at least the table of parts.
        """
        self._block = block
        self._read_more = read_more
        self.dtype = dtype
        self.rows = block.header.rows

    @cached_property
    def _parts(self) -> list[PayloadPart]:
        header = self._block.header
        self._block.check_raw_bytes(chunk_limit_bytes(header.stored_bytes))
        with self._block.explained():
            return checked_parts(header, self._block.stored)

    @cached_property
    def _first(self) -> bytes | memoryview:
        """The first part, or the whole raw payload if it is the only one."""
        header, (first, *others) = self._block.header, self._parts
        stored = self._stored([first])
        with self._block.explained():
            if others:
                return decompress_head(stored, header.raw_bytes)
            return decompress(header.codec, stored, header.raw_bytes)

    @cached_property
    def _decoder(self) -> TemplateDecoder:
        block, header, first = self._block, self._block.header, self._first
        with block.decoding():
            decoder = TemplateDecoder(
                block.meta,
                first,
                self.dtype,
                header.rows,
                max_bytes=chunk_limit_bytes(header.stored_bytes),
                raw_bytes=header.raw_bytes,
            )
        if len(self._parts) > 1 and len(first) != decoder.head_bytes:
            raise block.fault("the first part does not have exactly the templates and codes")
        return decoder

    @property
    def head(self) -> TemplateHead:
        """Templates, codes, and the layout of variables. Raises `CorruptFragmentError`."""
        return self._decoder.head

    @property
    def codes(self) -> pa.Array:
        """The template of each row, null where the string is. Raises `CorruptFragmentError`."""
        with self._block.decoding():
            return self._decoder.head.codes

    @property
    def head_bytes(self) -> int:
        """Bytes of the raw payload that the head takes. Raises `CorruptFragmentError`."""
        return self._decoder.head_bytes

    @property
    def has_variables(self) -> bool:
        """Whether variables are decompressed. Raises `CorruptFragmentError`."""
        return self._decoder.has_variables

    def texts(self, chosen: Bits | None = None) -> pa.Array:
        """Returns the strings of the chosen rows, or of all. Raises `CorruptFragmentError`."""
        decoder = self._decoder
        if not decoder.has_variables:
            rest = self._rest(decoder.head_bytes)
            with self._block.decoding():
                decoder.take_variables(rest)
        with self._block.decoding():
            return decoder.texts(chosen)

    def _rest(self, head_bytes: int) -> bytes | memoryview:
        """Returns the raw payload behind the head. head_bytes: the length of the head."""
        _, *others = self._parts
        if not others:
            return memoryview(self._first)[head_bytes:]
        stored = self._stored(others)
        with self._block.explained():
            return decompress_parts(stored, others, self._block.header.raw_bytes - head_bytes)

    def _stored(self, parts: Sequence[PayloadPart]) -> bytes | memoryview:
        """Returns the stored bytes of adjacent parts, verified; reads them unless they are in memory."""
        start, stop = parts[0].start, parts[-1].stop
        stored = memoryview(self._block.stored)[start:stop]
        if len(stored) < stop - start and self._read_more is not None:
            stored = memoryview(self._read_more(start, stop - start))
        with self._block.explained():
            for part in parts:
                part.check(stored[part.start - start : part.stop - start])
        return stored


class TemplateSizes(NamedTuple):
    """Sizes of a TEMPLATE chunk, from its beginning."""

    rows: int
    templates: int
    head_bytes: int
    """Stored bytes of templates, codes and alphabets; raw bytes if these are no separate part."""
    variables_bytes: int
    """The remaining stored bytes."""


def read_sizes(block: Block) -> TemplateSizes:
    """Returns the sizes of a TEMPLATE chunk from its beginning. block: see `TemplateChunk`.

    Raises `CorruptFragmentError`.
    """
    header = block.header
    with block.explained():
        templates, head_bytes = template_counts(block.meta)
        first, *others = checked_parts(header, block.stored)
    if others:
        head_bytes = first.stop
    if not 0 <= head_bytes <= header.stored_bytes:
        head_bytes = header.stored_bytes
    return TemplateSizes(header.rows, templates, head_bytes, header.stored_bytes - head_bytes)


def has_templates(block: Block) -> bool:
    """Returns whether the chunk stores strings as templates. Raises `CorruptFragmentError`."""
    return block.encoding == Encoding.TEMPLATE.name
