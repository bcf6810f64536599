"""Reads the nodes of one chunk, one after the other: what the decoder of each encoding is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import pyarrow as pa
from pyarrow import types as pt

from lsm_fragment.arrays.buffers import integer_bytes
from lsm_fragment.arrays.types import is_string
from lsm_fragment.encodings.allowance import Allowance
from lsm_fragment.encodings.node import Encoding
from lsm_fragment.native.arrays.text import is_ascii
from lsm_fragment.native.encodings.decode import Cursor


class Keep(NamedTuple):
    """Forms in which the root node may stay, so that a merge can move codes instead of bytes."""

    dictionary: bool = False
    """Strings, binaries, lists and maps stay dictionary-coded: int32 codes over distinct values."""
    templates: bool = False
    """Strings that are stored as templates and variables stay a templated array."""


KEEP_NOTHING = Keep()


class NodeShape(NamedTuple):
    """What a node of an encoding may say; readers refuse everything else."""

    children: int | None = 0
    """The number of its children; None if its type tells it."""
    has_width: bool = False
    has_param: bool = False


class EncodingModule(Protocol):
    """What the file of an encoding tells and does beside its own way of encoding."""

    @property
    def ENCODING(self) -> Encoding: ...  # noqa: N802

    @property
    def SHAPE(self) -> NodeShape: ...  # noqa: N802

    def fits(self, dtype: pa.DataType, /) -> bool:
        """Returns whether values of the type may be stored so."""

    def decode(
        self, reader: ChunkReader, dtype: pa.DataType, length: int, keep: Keep, /
    ) -> pa.Array:
        """Decodes the node that `reader.cursor` has taken. Raises `ValueError` on any inconsistency."""


class ChunkReader:
    """A chunk whose nodes are decoded one after the other."""

    def __init__(
        self, cursor: Cursor, allowance: Allowance, encodings: Mapping[int, EncodingModule]
    ) -> None:
        self.cursor = cursor
        self.allowance = allowance
        self._encodings = encodings

    def decode(self, dtype: pa.DataType, length: int, keep: Keep = KEEP_NOTHING) -> pa.Array:
        """Decodes the next node, and those below it."""
        encoding = self._encodings[self.cursor.take(length)]
        if not encoding.fits(dtype):
            raise unfit(encoding.ENCODING, dtype)
        return encoding.decode(self, dtype, length, keep)

    def validity(self) -> tuple[pa.Buffer | None, int]:
        """Takes the validity of the node that was taken last. Returns the bitmap, None if nothing is null,
        and the number of nulls."""
        nulls = self.cursor.null_count
        return self.cursor.validity(), nulls


def integers_fit(dtype: pa.DataType) -> bool:
    return integer_bytes(dtype) is not None


def decode_integers(reader: ChunkReader, dtype: pa.DataType, length: int, _keep: Keep) -> pa.Array:
    """Decodes a node of any encoding of integers, which `native.encodings.decode` reads as one stream."""
    width = integer_bytes(dtype)
    assert width is not None
    validity, nulls = reader.validity()
    words = reader.cursor.integers().words(width, pt.is_floating(dtype))
    return checked(pa.Array.from_buffers(dtype, length, [validity, words], nulls))


def checked(array: pa.Array) -> pa.Array:
    """Returns the array. Raises `ValueError` if values are not of their type.

    Callers rely on valid UTF-8, and conditions on decimals that have no more digits than their type.
    """
    if _may_hold_others(array):
        array.validate(full=True)
    return array


def _may_hold_others(array: pa.Array) -> bool:
    """Returns whether values have to be looked at to know that they are of their type."""
    dtype = array.type
    if is_string(dtype):
        return not is_ascii(array.buffers()[2])
    return bool(pt.is_decimal(dtype))


def unfit(encoding: int, dtype: pa.DataType) -> ValueError:
    return ValueError(f"encoding {Encoding(encoding).name} does not go with type {dtype}")
