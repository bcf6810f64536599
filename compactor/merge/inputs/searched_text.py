"""Notes which columns were stored as text by a writer that had searched them for templates."""

from __future__ import annotations

from typing import Final

from lsm_fragment.container.block import Block
from lsm_fragment.encodings.node import Encoding
from lsm_fragment.encodings.vocabulary import MIN_TEXT_BYTES

_TEXT: Final = (Encoding.VARLEN.name, Encoding.LETTERS.name, Encoding.VOCABULARY.name)


class SearchedText:
    """The chunks of one column of one input that were read so far.

    Writers search strings for templates and dictionaries before they store them as text, so a merge need not
    search row groups of the same strings that are not much larger.
    """

    def __init__(self) -> None:
        self._are_text = True
        self._are_words = True
        self._is_refused = False
        self._max_rows = 0

    def note(self, block: Block) -> None:
        """Notes the next chunk. One of only nulls says nothing."""
        encoding = block.encoding
        self._are_text &= encoding in (*_TEXT, Encoding.NULL.name)
        if encoding in _TEXT:
            is_large = block.header.raw_bytes >= MIN_TEXT_BYTES
            self._is_refused |= encoding == Encoding.VARLEN.name and is_large
            self._are_words &= encoding == Encoding.VOCABULARY.name
            self._max_rows = max(self._max_rows, block.header.rows)

    @property
    def rows(self) -> int:
        """Rows of the largest chunk, if all are text; otherwise 0."""
        return self._max_rows if self._are_text else 0

    @property
    def by_vocabulary(self) -> bool | None:
        """Whether all of the text is stored by a vocabulary; None if it was never large enough for one."""
        return True if self._are_words else False if self._is_refused else None
