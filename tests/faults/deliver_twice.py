"""A call that the network delivers twice: its caller gets the second answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from tests.faults.calls import Call, Effect


def _nothing() -> None: ...


class DeliverTwice(Struct, frozen=True):
    meanwhile: Callable[[], object] = _nothing
    """What others do between the two deliveries."""

    def around(self, call: Call, effect: Effect) -> Any:
        effect()
        self.meanwhile()
        return effect()
