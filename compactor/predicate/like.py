"""What SQL's LIKE says of a text before it is looked at."""

from __future__ import annotations


def literal_prefix(pattern: str) -> str:
    """What every text of the pattern begins with."""
    ends = (pattern.find(special) for special in "%_\\" if special in pattern)
    return pattern[: min(ends, default=len(pattern))]
