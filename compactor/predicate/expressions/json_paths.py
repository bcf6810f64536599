"""Takes values out of JSON texts by paths such as `$.user.ids[0]`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from sqlglot import expressions as exp
from sqlglot import jsonpath
from sqlglot.errors import SqlglotError

from compactor.common.escaping import shortened
from compactor.predicate.expressions.texts import row_by_row

Step = str | int
"""The name of a field, or the place of an element, from 0 or, if negative, from the end."""
_NULL: Final = b"null"
_MAX_SHOWN: Final = 60
_NO_JSON: Final = (msgspec.DecodeError, RecursionError)
"""Texts of more levels than the decoder has count as none."""
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_elements: Final = msgspec.json.Decoder(list[msgspec.Raw])
_string: Final = msgspec.json.Decoder(str)
_any: Final = msgspec.json.Decoder(msgspec.Raw)


def json_extract(texts: Any, path: pa.Scalar) -> Any:
    """Returns what is at the path of each JSON text, as JSON; null if there is nothing.

    Raises `pa.ArrowInvalid` for a text that is no JSON, and for a path that is none.
    """
    return row_by_row(_at(path, _as_json), pa.string())(texts)


def json_extract_string(texts: Any, path: pa.Scalar) -> Any:
    """Likewise, but JSON's strings as the texts that they are, and null for JSON's null."""
    return row_by_row(_at(path, _as_text), pa.string())(texts)


def json_valid(texts: Any) -> Any:
    """Returns whether each text is JSON."""
    return row_by_row(_is_json, pa.bool_())(texts)


def _is_json(text: str) -> bool:
    try:
        _any.decode(text)
    except _NO_JSON:
        return False
    return True


def _at(path: pa.Scalar, shown: Callable[[msgspec.Raw], str | None]) -> Callable[[str], str | None]:
    steps = _steps(path.as_py())

    def call(text: str) -> str | None:
        try:
            value: msgspec.Raw | None = _any.decode(text)
            for step in steps:
                value = None if value is None else _child(value, step)
            return None if value is None else shown(value)
        except _NO_JSON as error:
            raise pa.ArrowInvalid(f"{shortened(text, _MAX_SHOWN)!r} is no JSON: {error}") from None

    return call


def _child(value: msgspec.Raw, step: Step) -> msgspec.Raw | None:
    first = bytes(value)[:1]
    if isinstance(step, str):
        return _fields.decode(value).get(step) if first == b"{" else None
    if first != b"[":
        return None
    elements = _elements.decode(value)
    return elements[step] if -len(elements) <= step < len(elements) else None


def _as_json(value: msgspec.Raw) -> str:
    return msgspec.json.format(bytes(value), indent=-1).decode()


def _as_text(value: msgspec.Raw) -> str | None:
    whole = bytes(value)
    if whole == _NULL:
        return None
    return _string.decode(value) if whole.startswith(b'"') else _as_json(value)


def _steps(path: str | int) -> Sequence[Step]:
    """Parses a path; one that does not begin with `$` is the name of a field, or the place of an element."""
    if isinstance(path, int) or not path.startswith("$"):
        return [path]
    try:
        parts = jsonpath.parse(path).expressions[1:]
    except SqlglotError as error:
        raise pa.ArrowInvalid(f"{path!r} is no path, as in '$.user.ids[0]': {error}") from None
    steps = [part.this for part in parts]
    for part, step in zip(parts, steps, strict=True):
        is_step = isinstance(part, exp.JSONPathKey | exp.JSONPathSubscript)
        if not (is_step and isinstance(step, str | int)):
            raise pa.ArrowInvalid(
                f"{path!r} has to lead to one value: names and numbers of elements, as in '$.user.ids[0]'"
            )
    return steps
