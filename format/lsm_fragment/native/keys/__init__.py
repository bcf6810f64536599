"""Loops that order rows: normalised keys, the merge by them, extremes."""

from lsm_fragment.native.keys import extremes, key_merge, normalised

__all__ = ["extremes", "key_merge", "normalised"]
