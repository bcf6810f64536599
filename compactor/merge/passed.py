"""Row groups that go out as they came in: compressed, unread.

What their chunks hold is known only to their input's footer, which comes last; so does the output's.
"""

from __future__ import annotations

from typing import Final

from format.footer import Footer
from format.keys import Value

_BOUNDS_BYTES: Final = 256
"""Of a chunk's least and greatest value as Python has them."""


class Passed:
    """Row groups of one input that were passed on."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._bounds: dict[str, dict[int, tuple[Value, Value]]] = {}
        self._row_hashes: dict[int, int] = {}

    def add(self, group: int) -> None:
        """group: its number in the input."""
        self._groups.add(group)

    def take_from(self, footer: Footer) -> None:
        for name, chunks in footer.columns.items():
            self._bounds[name] = {g: (chunks[g].min, chunks[g].max) for g in self._groups}
        self._row_hashes = {g: footer.row_groups[g].row_hash for g in self._groups}

    @property
    def nbytes(self) -> int:
        """About what is held of the footer."""
        return _BOUNDS_BYTES * len(self._bounds) * len(self._groups)

    def row_hash(self, group: int) -> int:
        return self._row_hashes[group]

    def bounds(self, column: str, group: int) -> tuple[Value, Value]:
        """Least and greatest value of a chunk; a column that the input has not is null."""
        return self._bounds.get(column, {}).get(group, (None, None))
