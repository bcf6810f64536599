"""A connection that breaks."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from tests.faults.calls import Call, Effect


class Drop(Struct, frozen=True):
    after_bytes: int | None = None
    """The bytes of the answer's body that still arrive; None: the call itself never arrives."""

    def around(self, call: Call, effect: Effect) -> Any:
        if self.after_bytes is None:
            raise call.dropped()
        return call.cut(effect(), self.after_bytes)
