"""Loops that gather rows of several sources in merged order."""

from lsm_fragment.native.gather import ids, origins, rows, words

__all__ = ["ids", "origins", "rows", "words"]
