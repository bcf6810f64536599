"""Reads chunks of templates as far as a query needs them."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from format.blocks import Block, BlockReader
from format.compression import BEGINNING_BYTES, first_frame_bytes
from format.decode import TemplateDecoder, TemplateHead, template_counts
from format.errors import CorruptFragmentError
from format.layout import Codec
from format.nodes import Encoding


class TemplateChunk:
    """The strings of one chunk, of which templates and codes are decoded first, and variables where text is
    asked for. These are kept, and text is not.
    """

    def __init__(self, block: Block, dtype: pa.DataType) -> None:
        """block: one that `has_templates`. dtype: the storage type of the strings."""
        self._block = block
        self.dtype = dtype
        self.rows = block.header.rows

    @cached_property
    def _decoder(self) -> TemplateDecoder:
        return self._block.template_decoder(self.dtype)

    @property
    def head(self) -> TemplateHead:
        """Templates, codes, and what is known of variables. Raises `CorruptFragmentError`."""
        return self._decoder.head

    @property
    def head_bytes(self) -> int:
        """How many bytes of the raw payload the head takes. Raises `CorruptFragmentError`."""
        return self._decoder.head_bytes

    @property
    def has_variables(self) -> bool:
        """Whether variables have been decompressed. Raises `CorruptFragmentError`."""
        return self._decoder.has_variables

    def texts(self, chosen: npt.NDArray[np.bool_] | None = None) -> pa.Array:
        """Returns the strings of the chosen rows, or of all. Raises `CorruptFragmentError`."""
        return self._block.template_texts(self._decoder, chosen)


class TemplateSizes(NamedTuple):
    """What the beginning of a chunk of templates says of it."""

    rows: int
    templates: int
    head_bytes: int
    """Stored bytes of templates, codes and alphabets; raw ones if they have no frame of their own."""
    variables_bytes: int
    """The other stored bytes."""


def read_sizes(reader: BlockReader, column: str) -> TemplateSizes:
    """Reads the beginning of the next block, a chunk of templates, without its payload.

    Raises `CorruptFragmentError`.
    """
    offset = reader.offset
    header, meta = reader.read_head(column)
    try:
        templates, raw_head_bytes = template_counts(meta)
    except ValueError as error:
        raise CorruptFragmentError(
            f"the encoding tree is damaged: {error}", name=reader.name, offset=offset, column=column
        ) from error
    head_bytes = raw_head_bytes
    if header.codec is Codec.ZSTD_PARTS:
        head_bytes = first_frame_bytes(reader.read_exactly(BEGINNING_BYTES, column))
    if not 0 <= head_bytes <= header.stored_bytes:
        head_bytes = header.stored_bytes
    return TemplateSizes(header.rows, templates, head_bytes, header.stored_bytes - head_bytes)


def has_templates(block: Block) -> bool:
    """Returns whether strings of the chunk are stored as templates. Raises `CorruptFragmentError`."""
    return block.encoding == Encoding.TEMPLATE.name
