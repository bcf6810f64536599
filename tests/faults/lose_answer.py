"""A lost answer: the caller can't tell whether its call took effect."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from msgspec import Struct

from tests.faults.calls import Call, Effect


class LoseAnswer(Struct, frozen=True):
    landed: bool = True
    """Whether the call took effect."""

    def around(self, call: Call, effect: Effect) -> Any:
        if self.landed:
            with suppress(Exception):
                effect()
        raise call.unanswered()
