"""Writes one instant into SQL, in place of `now()`."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

_MAY_ASK: Final = re.compile(r"\b(now|current_timestamp|current_date)\b", re.IGNORECASE)


def at_instant(text: str, instant: datetime) -> str:
    """Returns the expression with `now()`, `current_timestamp` and `current_date` as values.

    Text that is no SQL stays as it is: its binder says what is wrong.
    """
    if _MAY_ASK.search(text) is None:
        return text
    from compactor.predicate.sql import SqlError, parsed, with_instant

    try:
        return with_instant(parsed(text), instant)
    except (SqlError, RecursionError):
        return text
