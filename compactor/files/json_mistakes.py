"""Explains a mistake in a line of JSON in terms of that line, with advice."""

from __future__ import annotations

from typing import Final

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyarrow import types as pt

from compactor.files.json_arrays import MAX_CELLS, MAX_COLUMNS, JsonArrays, Misfit
from lsm_fragment.arrays.types import MAX_NESTING
from lsm_fragment.native.arrays.json_rows import Problem, Trait

FATAL: Final = (Problem.COLUMNS, Problem.VALUES)
"""Mistakes of the whole file: no line can be left out instead."""
_KINDS: Final = {
    Trait.IS_BOOL: "a boolean",
    Trait.IS_TEXT: "a string",
    Trait.IS_LIST: "an array",
    Trait.IS_OBJECT: "an object",
}
_SHOWN_CHARACTERS: Final = 60
_INTEGERS: Final = (
    "has integers beyond 64 bits, beyond int64 among negative numbers, or beyond 2^53 among "
    "fractions"
)
_values: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Mistake(Struct, frozen=True):
    """What the parser refuses a line for."""

    problem: int
    node: int
    traits: int
    """Of the value."""
    at: int
    """Its byte in the line."""


def explained(
    mistake: Mistake, line: bytes, arrays: JsonArrays, field: pa.Field | None, unit: str
) -> str:
    """Returns the message for a line with a mistake. field: the table's column that has it. unit: what the
    file has one object for, `line` or `item`."""
    path = arrays.rows.path(mistake.node)[:_SHOWN_CHARACTERS]
    if field is not None and (cause := cause_in(field, mistake, line, arrays)):
        return _unfit(line, field, cause)
    match mistake.problem:
        case Problem.NOT_OBJECT if (kind := _first_kind(line)) is not None:
            is_line_of_array = unit == "line" and line.startswith(b"[")
            hint = "; jq -c '.[]' makes that of one array" if is_line_of_array else ""
            return f"is not a JSON object but {kind}: write one object per {unit}{hint}"
        case Problem.TWICE:
            return f"field {path!r} is given twice: remove one of the two"
        case Problem.NESTED:
            return f"is nested more than {MAX_NESTING} levels deep: flatten it"
        case Problem.COLUMNS:
            key = ".".join(filter(None, (path, _key_at(line, mistake.at))))[:_SHOWN_CHARACTERS]
            return (
                f"key {key!r} would be a column more than the {MAX_COLUMNS:,} that a file may have: "
                'write keys that vary as values, [{"key": ..., "value": ...}]'
            )
        case Problem.VALUES:
            return (
                f"its objects and their fields make more than {MAX_CELLS:,} values: write keys that vary "
                'as values, [{"key": ..., "value": ...}], or divide the list'
            )
        case Problem.ROUNDED:
            return f"field {path!r} {_INTEGERS}: write them as strings"
        case Problem.CONFLICT:
            traits = arrays.rows.traits(mistake.node) if _is_known(mistake.node, arrays) else 0
            # That is in lines or items before, or in the same one.
            earlier = f"{_kind(traits)} before" if traits else "of another type before"
            kind = _kind(mistake.traits)
            return f"field {path!r} is {kind} here and {earlier}: make it one type throughout"
    return _not_one_object(line, mistake.at)


def cause_in(field: pa.Field, mistake: Mistake, line: bytes, arrays: JsonArrays) -> str:
    """Returns why a value is not of its column's type; empty for a mistake of another kind."""
    match mistake.problem:
        case Problem.FOREIGN:
            return f"the table's type has no field {_key_at(line, mistake.at)!r}"
        case Problem.ROUNDED:
            return "it does not hold it exactly"
        case Problem.CONFLICT:
            path = arrays.rows.path(mistake.node)
            is_fraction = mistake.traits & Trait.IS_DOUBLE and pt.is_integer(field.type)
            kind = "a fraction" if is_fraction else _kind(mistake.traits)
            return f"{'it' if path == field.name else path} is {kind}"
    return ""


def explained_misfit(
    misfit: Misfit, line: bytes, arrays: JsonArrays, field: pa.Field | None
) -> str:
    """Returns the message for a value that its type can't hold."""
    if field is not None:
        return _unfit(line, field, misfit.cause)
    path = arrays.rows.path(misfit.node)
    return (
        f"field {path!r} has {misfit.number[:_SHOWN_CHARACTERS]}, which a double does not hold: write them "
        "as strings"
    )


def _not_one_object(line: bytes, at: int) -> str:
    if b"\0" in line:
        return "has a NUL byte, as in UTF-16: save the file as UTF-8"
    found = line[at : at + 20].decode(errors="replace").strip()
    cause = f"{found!r} can't stand at byte {at + 1:,}" if found else "it ends too early"
    return (
        f"is not one JSON object ({cause}): correct it; if it is the last, the file may be cut off"
    )


def _unfit(line: bytes, field: pa.Field, cause: str) -> str:
    because = f" ({cause})" if cause else ""
    left_out = "it" if field.nullable else "the row"
    return (
        f"column {field.name!r}: {_shown(line, field.name)} can't be read as {field.type}{because}: correct "
        f"the value or leave {left_out} out"
    )


def _shown(line: bytes, column: str) -> str:
    try:
        value = bytes(_values.decode(line)[column]).decode()
    except (ValueError, RecursionError, KeyError):
        return "its value"
    return value if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]}..."


def _key_at(line: bytes, at: int) -> str:
    return line[at : line.find(b'"', at)].decode(errors="replace")


def _is_known(node: int, arrays: JsonArrays) -> bool:
    """Returns whether lines before the one with a mistake have the field: what that line told is undone."""
    place = 0
    for name in arrays.rows.names(node):
        found = [child for child, own in arrays.rows.children(place) if own == (name or "")]
        if not found:
            return False
        place = found[0]
    return place == node


def _kind(kinds: int) -> str:
    return next((name for kind, name in _KINDS.items() if kinds & kind), "a number")


def _first_kind(line: bytes) -> str | None:
    """Returns what kind of value a line has that is no object; None if it has none."""
    try:
        value = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return None
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case list():
            return "an array"
    return "a number"
