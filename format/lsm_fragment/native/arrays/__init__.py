"""Loops over the values of arrays: strings, integers, text, hashes, cells of CSV, connected components.

`json_rows` parses lines of JSON, `components` connects numbers. Their callers import them, so that other
commands do not load them.
"""

from lsm_fragment.native.arrays import cells, hashing, integers, patterns, strings, text

__all__ = ["cells", "hashing", "integers", "patterns", "strings", "text"]
