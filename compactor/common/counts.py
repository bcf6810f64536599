"""Formats counts for people: `1 fragment`, `1,234 fragments`."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """Returns a number with its noun. one: the singular; many: the plural, by default with an s.

    Both may include a verb: `counted(n, "fragment is", "fragments are")`.
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
