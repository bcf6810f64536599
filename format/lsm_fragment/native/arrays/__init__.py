"""Loops over the values of arrays: strings, integers, text, hashes."""

from lsm_fragment.native.arrays import hashing, integers, patterns, strings, text

__all__ = ["hashing", "integers", "patterns", "strings", "text"]
