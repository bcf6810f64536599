"""Explains an error in a line of JSON in terms of that line, with advice."""

from __future__ import annotations

import re
from typing import Final

import msgspec
import pyarrow as pa

from compactor.files.json_blocks import NestingError, parse_block
from compactor.files.json_kept import with_json_as_text
from compactor.files.json_numbers import RoundedError
from compactor.files.problems import PROBLEMS, ColumnError, one_line
from compactor.files.shapes import ShapeConflictError
from compactor.files.text_values import wire_type

_CHANGED: Final = re.compile(r"Column\(/?(.*)\) changed from (\w+) to (\w+)")
_TWICE: Final = re.compile(r"Column\(/?(.*)\) was specified twice")
_NOISE: Final = re.compile(r"^JSON parse error: |,? in row \d+$")
_SHOWN_CHARACTERS: Final = 60
_values: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def explained(error: Exception, line: bytes, types: pa.Schema) -> str:
    """Returns the message for an error caused by `line`.

    types: columns whose type is fixed by the table or by the whole file.
    """
    text = one_line(error)
    if isinstance(error, ShapeConflictError):
        return f"{text}: make it one type throughout"
    if isinstance(error, (RoundedError, NestingError)):
        return text
    if isinstance(error, ColumnError):
        return _unfit(line, error.column, error.dtype, error.cause)
    if changed := _CHANGED.search(text):
        return _changed_kind(line, types, *changed.groups())
    if twice := _TWICE.search(text):
        return f"field {_dotted(twice[1])!r} is given twice: remove one of the two"
    if "onvert JSON to" in text and (field := _field_at_fault(line, types)) is not None:
        return _unfit(line, field.name, field.type, "")
    if "too big to be stored" in text:
        return "a number is too large for a double: write it as a string"
    if "UTF8" in text or isinstance(error, UnicodeDecodeError):
        return "is not valid UTF-8: save the file as UTF-8"
    cause = _NOISE.sub("", text).rstrip(".")
    return (
        f"is not one JSON object ({cause}): correct it; if it is the last, the file may be cut off"
    )


def _changed_kind(line: bytes, types: pa.Schema, path: str, earlier: str, here: str) -> str:
    if not path:
        hint = "; jq -c '.[]' makes that of one array" if line.lstrip().startswith(b"[") else ""
        return f"is not a JSON object but {_a(here)}: write one object per line{hint}"
    name = path.split("/")[0]
    if name in types.names:
        inside = "it" if path == name else _dotted(path)
        return _unfit(line, name, types.field(name).type, f"{inside} is {_a(here)}")
    return (
        f"field {_dotted(path)!r} is {_a(here)} here and {_a(earlier)} in the lines before: make it "
        "one type throughout"
    )


def _unfit(line: bytes, column: str, dtype: pa.DataType, cause: str) -> str:
    because = f" ({cause})" if cause else ""
    return (
        f"column {column!r}: {_shown(line, column)} can't be read as {dtype}{because}: correct the "
        "value or leave it out"
    )


def _field_at_fault(line: bytes, types: pa.Schema) -> pa.Field | None:
    for field in types:
        try:
            wire = pa.schema([(field.name, wire_type(field.type))])
            text = with_json_as_text(line, pa.schema([field]))
            parse_block(text, wire, other_fields="ignore")
        except PROBLEMS:
            return field
    return None


def _shown(line: bytes, column: str) -> str:
    try:
        value = bytes(_values.decode(line)[column]).decode()
    except (ValueError, RecursionError, KeyError):
        return "its value"
    return value if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]}..."


def _dotted(path: str) -> str:
    return path.replace("/[]", "[]").replace("/", ".")


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
