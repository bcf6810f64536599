"""Records as plain values, for JSON and for the fields of log lines."""

from __future__ import annotations

from typing import Any

import msgspec


def plain(value: Any) -> Any:
    """Returns dicts, lists, texts and numbers for records, and for records inside of them."""
    return msgspec.to_builtins(value, enc_hook=_plainer)


def plain_dict(record: Any) -> dict[str, Any]:
    """Returns the fields of a record by name, and those of records inside of it likewise."""
    fields: dict[str, Any] = plain(record)
    return fields


def _plainer(value: Any) -> Any:
    """Converts what msgspec does not take for a text or a number: subclasses, such as `Message` and NumPy's.

    Raises TypeError for other values.
    """
    for kind in (str, float):
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(f"a {type(value).__name__} has no plain value")
