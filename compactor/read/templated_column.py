"""Decides conditions on strings that are stored as templates, joining no more rows than it must."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.predicate.template_answers import Answer, answers
from compactor.predicate.tree import ByValue, by_value
from format.arrays import with_nulls_of
from format.nodes import fixed_width_view
from format.template_chunk import TemplateChunk

Bits = npt.NDArray[np.bool_]


class TemplatedColumn:
    """A `LazyColumn` of one row group.

    Each template is asked once. Only rows of templates that cannot tell are joined, and of those only rows
    whose result counts. Where there are none, the variables are not even decompressed.
    """

    def __init__(self, chunk: TemplateChunk) -> None:
        self._chunk = chunk
        self._is_asked = False

    def is_null(self) -> pa.Array:
        return self._chunk.head.codes.is_null()

    def matching(self, condition: ByValue, asked: pa.Array | None) -> pa.Array:
        head = self._chunk.head
        self._is_asked |= asked is None or bool(asked.true_count)
        said = answers(condition, head.templates, head.layout, head.alphabets, self._chunk.rows)
        if not said.any():
            return with_nulls_of(head.codes, pa.repeat(False, self._chunk.rows))
        by_row = said[fixed_width_view(head.codes, np.int32)]
        found: Bits = by_row == Answer.ALWAYS
        unsure: Bits = by_row == Answer.MAYBE
        if asked is not None:
            unsure &= asked.to_numpy(zero_copy_only=False)
        if head.codes.null_count:
            unsure &= head.codes.is_valid().to_numpy(zero_copy_only=False)
        if unsure.any():
            holds = by_value(condition, self._chunk.texts(unsure))
            found[unsure] = holds.to_numpy(zero_copy_only=False)
        return with_nulls_of(head.codes, pa.array(found))

    @property
    def is_asked(self) -> bool:
        """Whether a condition on some of the strings was asked for."""
        return self._is_asked

    @property
    def has_variables(self) -> bool:
        """Whether the variables have been decompressed."""
        return self._chunk.has_variables

    @property
    def templates(self) -> pa.Array:
        """The templates, of which rows may use only some."""
        return self._chunk.head.templates

    @property
    def codes(self) -> pa.Array:
        """The template of each row; null where the string is."""
        return self._chunk.head.codes

    def texts(self, keep: pa.Array | None) -> pa.Array:
        """Returns the strings of some rows: `keep` is bool without nulls; None for all."""
        return self._chunk.texts(None if keep is None else keep.to_numpy(zero_copy_only=False))
