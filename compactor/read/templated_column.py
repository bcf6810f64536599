"""Evaluates conditions on strings stored as templates, decoding as few strings as possible."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.predicate.template_answers import Answer, Answers, answers
from compactor.predicate.tree import ByValue, by_value
from lsm_fragment import native
from lsm_fragment.arrays.buffers import fixed_width_view
from lsm_fragment.container.template_chunk import TemplateChunk

Bits = npt.NDArray[np.bool_]


class TemplatedColumn:
    """A `LazyColumn` of one row group.

    Evaluates each template once. Joins only rows whose template leaves the result open, and only if their
    result is used. If there are none, the variables are never read.
    """

    def __init__(self, chunk: TemplateChunk) -> None:
        self._chunk = chunk
        self._is_evaluated = False

    def is_null(self) -> pa.Array:
        return self._decided(pa.repeat(False, self._chunk.rows)).is_null()

    def matching(self, condition: ByValue, needed: pa.Array | None) -> pa.Array:
        head, rows = self._chunk.head, self._chunk.rows
        self._is_evaluated |= needed is None or bool(needed.true_count)
        verdicts = answers(condition, head.templates, head.layout, head.alphabets, rows)
        if not verdicts.any():
            return self._decided(pa.repeat(False, rows))
        if (verdicts == Answer.ALWAYS).all():
            return self._decided(pa.repeat(True, rows))
        codes = fixed_width_view(self._chunk.codes, np.int32)
        if not (verdicts == Answer.MAYBE).any():
            bits = np.empty((rows + 7) // 8, dtype=np.uint8)
            native.arrays.patterns.hold(codes, (verdicts == Answer.ALWAYS).view(np.uint8), bits)
            found = pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(bits)], 0)
            return self._decided(found)
        return self._decided(self._by_row(condition, verdicts[codes], needed))

    def _by_row(self, condition: ByValue, verdicts: Answers, needed: pa.Array | None) -> pa.Array:
        """Joins the rows whose template leaves the result open. verdicts: of each row's template."""
        found: Bits = verdicts == Answer.ALWAYS
        unsure: Bits = verdicts == Answer.MAYBE
        if needed is not None:
            unsure &= needed.to_numpy(zero_copy_only=False)
        if self._chunk.head.null_count:
            unsure &= ~self.is_null().to_numpy(zero_copy_only=False)
        if unsure.any():
            holds = by_value(condition, self._chunk.texts(unsure))
            found[unsure] = holds.to_numpy(zero_copy_only=False)
        return pa.array(found)

    def _decided(self, holds: pa.Array) -> pa.Array:
        """Adds the validity of the strings to booleans."""
        head = self._chunk.head
        if not head.null_count:
            return holds
        buffers = [head.validity, holds.buffers()[1]]
        return pa.Array.from_buffers(pa.bool_(), len(holds), buffers, head.null_count)

    @property
    def is_evaluated(self) -> bool:
        """Whether a condition was evaluated on any row."""
        return self._is_evaluated

    @property
    def has_variables(self) -> bool:
        """Whether the variables have been decompressed."""
        return self._chunk.has_variables

    @property
    def templates(self) -> pa.Array:
        """The templates; some may be unused."""
        return self._chunk.head.templates

    @property
    def codes(self) -> pa.Array:
        """The template of each row; null where the string is."""
        return self._chunk.codes

    def texts(self, keep: pa.Array | None) -> pa.Array:
        """Returns the strings of some rows. keep: bool without nulls; None for all."""
        return self._chunk.texts(None if keep is None else keep.to_numpy(zero_copy_only=False))
