"""Loops that encode and decode the values of one chunk."""

from lsm_fragment.native.encodings import (
    bits,
    decode,
    floats,
    letters,
    templates,
    tokens,
    varying,
    vocabulary,
)

__all__ = ["bits", "decode", "floats", "letters", "templates", "tokens", "varying", "vocabulary"]
