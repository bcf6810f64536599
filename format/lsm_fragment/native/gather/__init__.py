"""Loops that gather rows of several sources in merged order."""

from lsm_fragment.native.gather import ids, origins, rows

__all__ = ["ids", "origins", "rows"]
