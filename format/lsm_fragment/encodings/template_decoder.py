"""Decodes a TEMPLATE chunk in steps: the head, then the strings of the rows that a query needs."""

from __future__ import annotations

import pyarrow as pa

from lsm_fragment.arrays.templated import Bits
from lsm_fragment.arrays.types import is_string
from lsm_fragment.encodings.allowance import ANY_VALUES, Allowance, charge_nothing
from lsm_fragment.encodings.node import MAX_UNBACKED_VALUES, Encoding
from lsm_fragment.encodings.reading import ChunkReader, unfit
from lsm_fragment.encodings.registry import MODULES
from lsm_fragment.encodings.template import take_head, take_variables
from lsm_fragment.native.encodings.decode import Cursor


class TemplateDecoder:
    """Decodes a chunk whose root is TEMPLATE: the head, then the strings of some rows."""

    def __init__(
        self,
        meta: bytes,
        head: bytes | memoryview,
        dtype: pa.DataType,
        rows: int,
        *,
        max_bytes: int,
        raw_bytes: int,
    ) -> None:
        """head: the raw payload, or its first part. raw_bytes: the length of the whole payload.

        max_bytes: see `decode_array`. Raises `ValueError`.
        """
        self._allowance = Allowance(max_bytes, None)
        max_values = max(MAX_UNBACKED_VALUES, 8 * raw_bytes)
        self._cursor = cursor = Cursor(meta, pa.py_buffer(head), max_values, self._allowance.charge)
        if cursor.take(rows) != Encoding.TEMPLATE or not is_string(dtype):
            raise unfit(cursor.encoding, dtype)
        self.head = take_head(ChunkReader(cursor, self._allowance, MODULES), dtype, rows)
        self._variables: tuple[pa.Buffer, pa.Buffer] | None = None

    @property
    def head_bytes(self) -> int:
        """The bytes of the raw payload that the head takes."""
        return self._cursor.position

    @property
    def has_variables(self) -> bool:
        return self._variables is not None

    def take_variables(self, rest: bytes | memoryview) -> None:
        """Takes the variables. rest: the raw payload behind the head. Raises `ValueError`."""
        cursor = self._cursor.continued(pa.py_buffer(rest), self._allowance.charge)
        variables = take_variables(cursor)
        cursor.finish()
        self._variables = variables

    def texts(self, chosen: Bits | None) -> pa.Array:
        """Returns the strings of the chosen rows, or of all, after `take_variables`. Raises `ValueError`."""
        assert self._variables is not None
        _ = self.head.codes  # charges the codes before `before`, since they are kept
        before = self._allowance.charged_bytes
        try:
            return self.head.joined(self._variables, self._allowance.charge, chosen)
        finally:  # the strings are not kept, so later calls do not pay for them
            self._allowance.charged_bytes = before


def template_counts(meta: bytes) -> tuple[int, int]:
    """Returns the number of templates of a TEMPLATE chunk, and the raw bytes of its head.

    Reads only the encoding nodes. Raises `ValueError`.
    """
    cursor = Cursor(meta, pa.py_buffer(b""), ANY_VALUES, charge_nothing)
    if cursor.take(cursor.next_length) != Encoding.TEMPLATE:
        raise ValueError("a chunk of another encoding than its footer states")
    head_bytes, templates = cursor.param, cursor.next_length
    nodes = cursor.children
    while nodes:
        cursor.take(cursor.next_length)
        nodes += cursor.children - 1
    return templates, head_bytes
