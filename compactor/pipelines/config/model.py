"""The base class of pipeline settings, and field checks that several nodes use."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

_Value = TypeVar("_Value")


class Model(BaseModel):
    """A group of settings. Unknown settings are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, (int, float)) else value


def _each_once(names: _Value) -> _Value:
    seen = set()
    for name in names if isinstance(names, tuple) else ():
        if name in seen:
            raise ValueError(f"{name!r} is named twice; name each once")
        seen.add(name)
    return names


def _place(place: str) -> str:
    if not place or "\0" in place:
        raise ValueError("a name is empty or contains a null character; name a file or a table")
    return place


Text = Annotated[str, BeforeValidator(_as_text)]
"""Text that YAML may parse as a number or date."""
EachOnce = AfterValidator(_each_once)
"""Refuses duplicates in a list."""
PlaceName = Annotated[str, AfterValidator(_place)]
"""A path or an address."""
