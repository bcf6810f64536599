"""An error for an answer, before the call takes effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from tests.faults.calls import Call, Effect


class Refuse(Struct, frozen=True):
    error: Callable[[str], BaseException]
    """Makes the error of a key, such as `PermissionDeniedError`; at a server, `answering` of s3_server.py."""

    def around(self, call: Call, effect: Effect) -> Any:
        raise self.error(call.key)
