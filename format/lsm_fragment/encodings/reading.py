"""Reads the nodes of one chunk in order: the interface between the decoders of encodings and the chunk."""

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
    """Encoded forms that the root node may keep, so that a merge can move codes instead of bytes."""

    dictionary: bool = False
    """Strings, binaries, lists and maps stay dictionary-coded: int32 codes over distinct values."""
    templates: bool = False
    """Strings that are stored as templates and variables stay a templated array."""
    words: bool = False
    """Strings that are stored by a vocabulary stay a worded array, if all their words are strings."""


KEEP_NOTHING = Keep()


class NodeShape(NamedTuple):
    """The node fields that an encoding uses; readers refuse all others."""

    children: int | None = 0
    """The number of children; None if the type tells it."""
    has_width: bool = False
    has_param: bool = False


class EncodingModule(Protocol):
    """What the file of an encoding provides for reading."""

    @property
    def ENCODING(self) -> Encoding: ...  # noqa: N802

    @property
    def SHAPE(self) -> NodeShape: ...  # noqa: N802

    def fits(self, dtype: pa.DataType, /) -> bool:
        """Returns whether the encoding can hold values of the type."""

    def decode(
        self, reader: ChunkReader, dtype: pa.DataType, length: int, keep: Keep, /
    ) -> pa.Array:
        """Decodes the current node of `reader.cursor`. Raises `ValueError` on any inconsistency."""


class ChunkReader:
    """A chunk whose nodes are decoded in order."""

    def __init__(
        self, cursor: Cursor, allowance: Allowance, encodings: Mapping[int, EncodingModule]
    ) -> None:
        self.cursor = cursor
        self.allowance = allowance
        self._encodings = encodings

    def decode(self, dtype: pa.DataType, length: int, keep: Keep = KEEP_NOTHING) -> pa.Array:
        """Decodes the next node and its descendants."""
        encoding = self._encodings[self.cursor.take(length)]
        if not encoding.fits(dtype):
            raise unfit(encoding.ENCODING, dtype)
        return encoding.decode(self, dtype, length, keep)

    def validity(self) -> tuple[pa.Buffer | None, int]:
        """Takes the validity of the current node. Returns the bitmap, None if nothing is null, and the null
        count."""
        nulls = self.cursor.null_count
        return self.cursor.validity(), nulls


def integers_fit(dtype: pa.DataType) -> bool:
    return integer_bytes(dtype) is not None


def decode_integers(reader: ChunkReader, dtype: pa.DataType, length: int, _keep: Keep) -> pa.Array:
    """Decodes a node of any integer encoding; `native.encodings.decode` reads all of them as one stream."""
    width = integer_bytes(dtype)
    assert width is not None
    validity, nulls = reader.validity()
    words = reader.cursor.integers().words(width, pt.is_floating(dtype))
    return checked(pa.Array.from_buffers(dtype, length, [validity, words], nulls))


def checked(array: pa.Array) -> pa.Array:
    """Returns the array. Raises `ValueError` if a value is invalid for its type.

    Callers rely on valid UTF-8, and predicates on decimals within their type's precision.
    """
    if _may_be_invalid(array):
        array.validate(full=True)
    return array


def _may_be_invalid(array: pa.Array) -> bool:
    """Returns whether the values have to be validated."""
    dtype = array.type
    if is_string(dtype):
        return not is_ascii(array.buffers()[2])
    return bool(pt.is_decimal(dtype))


def unfit(encoding: int, dtype: pa.DataType) -> ValueError:
    return ValueError(f"encoding {Encoding(encoding).name} does not go with type {dtype}")
