"""Settings as people write them, checked by their model: one line that names what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from compactor.errors import UsageError
from compactor.settings.messages import cause

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
        written = whole if isinstance(whole, str) and len(first["loc"]) == 1 else None
        told = cause(first, written)
        raise UsageError(f"{name_of(name)}: {told}" if name else told) from None
