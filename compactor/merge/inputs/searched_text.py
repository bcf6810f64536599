"""Notes which columns were stored as text by a writer that had searched them for templates."""

from __future__ import annotations

from typing import Final

from lsm_fragment.container.block import Block
from lsm_fragment.encodings.node import Encoding

_TEXT: Final = (Encoding.VARLEN.name, Encoding.LETTERS.name)


class SearchedText:
    """The chunks of one column of one input that were read so far.

    Writers search strings for templates and dictionaries before they store them as text, so a merge need not
    search row groups of the same strings that are not much larger.
    """

    def __init__(self) -> None:
        self._are_text = True
        self._max_rows = 0

    def note(self, block: Block) -> None:
        """Notes the next chunk. One of only nulls says nothing."""
        encoding = block.encoding
        self._are_text &= encoding in (*_TEXT, Encoding.NULL.name)
        if encoding in _TEXT:
            self._max_rows = max(self._max_rows, block.header.rows)

    @property
    def rows(self) -> int:
        """Rows of the largest chunk, if all are text; otherwise 0."""
        return self._max_rows if self._are_text else 0
