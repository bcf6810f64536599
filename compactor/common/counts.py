"""Writes numbers of things for people: `1 fragment`, `1,234 fragments`."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """Returns a number with its noun. one: the noun after 1; many: after others, by default with an s.

    Both may go on to a verb: `counted(n, "fragment is", "fragments are")`.
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
