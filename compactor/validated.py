"""Settings as people write them, checked by their model: one line that names what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from compactor.errors import UsageError

_Model = TypeVar("_Model", bound=BaseModel)


def validated(
    model: type[_Model], given: Mapping[str, Any], name_of: Callable[[str], str]
) -> _Model:
    """name_of: how the writer knows a setting, such as `--sort-by`. Raises `UsageError`."""
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"][:1])
        if first["type"] == "extra_forbidden":
            known = ", ".join(map(name_of, model.model_fields))
            raise UsageError(f"no option {name_of(name)!r}; there are: {known}") from None
        whole = given.get(name)
        text = whole if isinstance(whole, str) and len(first["loc"]) == 1 else first["input"]
        cause = _cause(first["type"], first.get("ctx", {}), repr(text)[:100])
        raise UsageError(f"{name_of(name)}: {cause}" if name else cause) from None


def _cause(kind: str, context: Mapping[str, Any], shown: str) -> str:
    """In our words. kind: pydantic's, of an error."""
    match kind:
        case "value_error":
            return str(context["error"])
        case "enum" | "literal_error":
            known = str(context["expected"]).replace("'", "").replace(" or ", ", ")
            return f"{shown} is none of: {known}"
        case "bool_parsing" | "bool_type":
            return f"{shown} is neither true nor false"
        case "greater_than_equal":
            return f"{shown} is too small: {_least(int(context['ge']))} at least"
        case "less_than":
            return f"{shown} is too large: less than {context['lt']}"
        case "less_than_equal":
            return f"{shown} is too large: {context['le']} at most"
        case "too_short" | "string_too_short":
            return f"{shown} names nothing"
        case _:
            return f"{shown} is no whole number"


def _least(value: int) -> str:
    return str(value) if value % (1 << 20) or not value else f"{value >> 20}MiB"
