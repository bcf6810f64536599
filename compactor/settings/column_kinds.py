"""`COLUMN:KIND`, as people write what is to become of columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

_Kind = TypeVar("_Kind")


def column_kinds(
    texts: Iterable[str], kinds: Mapping[str, _Kind], word: str = "kind"
) -> dict[str, _Kind]:
    """By column, in the order given; a column's name may have colons.

    kinds: by what is written. word: what one of them is called. Raises ValueError that says what to write.
    """
    chosen: dict[str, _Kind] = {}
    for text in texts:
        column, _, kind = text.rpartition(":")
        if not column or kind not in kinds:
            raise ValueError(
                f"{text!r}: give COLUMN:{word.upper()}, a {word} being one of {', '.join(kinds)}"
            )
        if column in chosen:
            raise ValueError(f"column {column!r} is named twice")
        chosen[column] = kinds[kind]
    return chosen
