"""A store that writes and reads unconditionally, as old S3-compatible servers do."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from tests.faults.calls import Call, Effect


class IgnoreConditions(Struct, frozen=True):
    """Objects are overwritten that were to be created only if absent, and read although they have changed."""

    def around(self, call: Call, effect: Effect) -> Any:
        call.ignore_conditions()
        return effect()
