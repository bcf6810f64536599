"""Loops over the values of arrays: strings, integers, text, hashes, cells of CSV.

`json_rows` parses lines of JSON. Its callers import it, so that other commands do not load it.
"""

from lsm_fragment.native.arrays import cells, hashing, integers, patterns, strings, text

__all__ = ["cells", "hashing", "integers", "patterns", "strings", "text"]
