"""Loops over the values of arrays: strings, integers, text, hashes, cells of CSV, lines of JSON."""

from lsm_fragment.native.arrays import (
    cells,
    hashing,
    integers,
    json_rows,
    patterns,
    strings,
    text,
)

__all__ = ["cells", "hashing", "integers", "json_rows", "patterns", "strings", "text"]
