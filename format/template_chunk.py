"""Reads chunks of templates as far as a query needs them."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from format.blocks import Block
from format.decode import TemplateDecoder, TemplateHead
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
        flags = None if chosen is None else chosen.view(np.uint8)
        return self._block.template_texts(self._decoder, flags)


def has_templates(block: Block) -> bool:
    """Returns whether strings of the chunk are stored as templates. Raises `CorruptFragmentError`."""
    return block.encoding == Encoding.TEMPLATE.name
