"""Loops over the values of arrays: strings, integers, text, hashes, cells of CSV."""

from lsm_fragment.native.arrays import cells, hashing, integers, patterns, strings, text

__all__ = ["cells", "hashing", "integers", "patterns", "strings", "text"]
