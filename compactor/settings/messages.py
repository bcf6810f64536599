"""Turns a Pydantic error into one line, for options, arguments, settings and files."""

from __future__ import annotations

from typing import Any, Final

from pydantic_core import ErrorDetails

_MAX_CHARACTERS: Final = 100
_MIB: Final = 1 << 20
_TIB: Final = 1 << 40
_SHAPES: Final = {
    "tuple_type": "list",
    "list_type": "list",
    "dict_type": "mapping of names to values",
    "model_type": "mapping of names to values",
}
"""What a setting has to be, in words of YAML."""


def cause(problem: ErrorDetails, given: object = None) -> str:
    """Returns the cause without the place. given: the user's text, if it was converted first."""
    what = shown(problem["input"] if given is None else given)
    context: dict[str, Any] = problem.get("ctx", {})
    match problem["type"]:
        case "value_error":
            return str(context["error"])
        case "enum" | "literal_error":
            known = str(context["expected"]).replace("'", "").replace(" or ", ", ")
            return f"{what} is none of: {known}"
        case "bool_parsing" | "bool_type":
            return f"{what} is neither true nor false"
        case "int_type" if isinstance(problem["input"], str) and problem["input"].isdecimal():
            return f"{what} is a text, not a whole number: write it without quotes"
        case "int_type":
            return f"{what} is no integer"
        case "int_parsing" | "int_from_float":
            return f"{what} is not a whole number"
        case "finite_number":
            return f"{what} is not a finite number"
        case "greater_than":
            return f"{what} is too small: more than {_number(context['gt'])}"
        case "greater_than_equal":
            return f"{what} is too small: {_number(context['ge'])} at least"
        case "less_than":
            return f"{what} is too large: less than {_number(context['lt'])}"
        case "less_than_equal":
            return f"{what} is too large: {_number(context['le'])} at most"
        case kind if kind in _SHAPES and problem["input"] is None:
            return f"nothing is given: write a {_SHAPES[kind]}"
        case "tuple_type" | "list_type" if isinstance(problem["input"], str):
            items = str(problem["input"]) if "," in problem["input"] else what
            return f"{what} is no list: write it in brackets, as in [{shortened(items)}]"
        case kind if kind in _SHAPES:
            return f"{what} is no {_SHAPES[kind]}"
        case "too_short" | "string_too_short" if context["min_length"] == 1:
            return f"{what} is empty; give at least one"
        case _:
            return f"{problem['msg'][0].lower()}{problem['msg'][1:]}, got {what}"


def shown(value: object) -> str:
    return shortened(repr(value).replace("\n", " "))


def shortened(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS] + "…"


def _number(bound: float) -> str:
    if bound >= _MIB and bound % _MIB == 0 and bound < 1 << 30:
        return f"{int(bound) >> 20}MiB"
    if bound >= _TIB and bound % _TIB == 0:
        return f"{int(bound) >> 40}TiB"
    return str(int(bound) if bound == int(bound) else bound)
