"""Parses `COLUMN:KIND`, the form in which users choose something for a column."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

_Kind = TypeVar("_Kind")


def column_kinds(
    texts: Iterable[str], kinds: Mapping[str, _Kind], word: str = "kind"
) -> dict[str, _Kind]:
    """Returns the chosen kinds by column, in the order given; a column's name may contain colons.

    kinds: the kinds by the word that users write. word: what messages call a kind.
    Raises ValueError with a message that says what to write.
    """
    chosen: dict[str, _Kind] = {}
    for text in texts:
        column, _, kind = text.rpartition(":")
        if not column or kind not in kinds:
            raise ValueError(
                f"{text!r}: give COLUMN:{word.upper()}, where {word} is one of {', '.join(kinds)}"
            )
        if column in chosen:
            raise ValueError(f"column {column!r} is named twice; name each once")
        chosen[column] = kinds[kind]
    return chosen
