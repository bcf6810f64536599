"""Parses `COLUMN:KIND`, by which users choose an option for a column, and `OLD:NEW`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from lsm_fragment.names import parse_name, split_outside_quotes

_Kind = TypeVar("_Kind")


def column_kinds(
    texts: Iterable[str], kinds: Mapping[str, _Kind], word: str = "kind"
) -> dict[str, _Kind]:
    """Returns the chosen kinds by column, in the given order.

    A name may be quoted; a colon in it needs no quotes.

    kinds: the kinds by the word that users write. word: the noun for a kind in messages.
    Raises ValueError whose message shows the correct form.
    """
    chosen: dict[str, _Kind] = {}
    for text in texts:
        name, _, kind = text.rpartition(":")
        if not name or kind not in kinds:
            hint = (
                f', or "a,b":{next(iter(kinds))} for a name with a comma' if ":" not in text else ""
            )
            raise ValueError(
                f"{text!r}: give COLUMN:{word.upper()}, where {word} is one of {', '.join(kinds)}{hint}"
            )
        column = parse_name(name)
        if column in chosen:
            raise ValueError(f"column {column!r} is named twice; name each once")
        chosen[column] = kinds[kind]
    return chosen


def renaming(text: str) -> tuple[str, str]:
    """Returns the names in `OLD:NEW`. Raises ValueError whose message shows the correct form."""
    parts = split_outside_quotes(text, ":")
    if len(parts) != 2 or not all(part.strip() for part in parts):
        raise ValueError(
            f'{text!r} is not of the form OLD:NEW; a name with a colon stands in quotes, as in "a:b":c'
        )
    return parse_name(parts[0]), parse_name(parts[1])
