"""Gives parameters of tests words for names, where pytest would number them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import pyarrow as pa

_MAX_CHARACTERS: Final = 60
_NO_WORDS: Final = re.compile(r" at 0x|^<|^\w+\.<locals>")


def words_for(value: object) -> str | None:
    """Returns words for a parameter that pytest has no name for, or None to leave it to pytest."""
    match value:
        case str():
            text = value if len(value) > _MAX_CHARACTERS else "" if value else "empty"
        case pa.DataType() | pa.Field():
            text = str(value)
        case Mapping() | list() | tuple():
            text = _listed(value) or str(value)
        case set() | frozenset():
            text = _listed(sorted(value, key=repr))  # processes order sets differently
        case pa.Array() | pa.Scalar():
            text = str(value.to_pylist() if isinstance(value, pa.Array) else value.as_py())
        case bytes() if not value:
            text = "empty"
        case type() | int() | float() | bytes():
            text = ""
        case _ if callable(value):
            text = ""
        case _:
            text = repr(value)
    text = " ".join(text.split())
    if not text or _NO_WORDS.search(text):
        return None
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 3]}..."


def _listed(value: object) -> str:
    """Returns lists and mappings without the quotes and braces that say nothing."""
    match value:
        case Mapping():
            return ", ".join(f"{_listed(key)}: {_listed(part)}" for key, part in value.items())
        case list() | tuple():
            return " ".join(map(_listed, value))
        case str():
            return value
        case pa.DataType() | pa.Field():
            return str(value)
        case type():
            return value.__name__
        case _:
            text = repr(value)
            return "" if _NO_WORDS.search(text) else text
