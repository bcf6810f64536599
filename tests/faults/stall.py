"""A call that waits while others act."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from tests.faults.calls import Call, Effect


class Stall(Struct, frozen=True):
    meanwhile: Callable[[], object]
    """Waits, or does what others do in that time."""
    answered: bool = False
    """Whether the call took effect before, and only its answer is late."""

    def around(self, call: Call, effect: Effect) -> Any:
        answer = effect() if self.answered else None
        self.meanwhile()
        return answer if self.answered else effect()
