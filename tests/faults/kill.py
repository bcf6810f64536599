"""A process that dies: nothing is cleaned up, and nothing takes effect any more."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from msgspec import Struct

from tests.faults.calls import Call, Effect


class Crash(BaseException):
    """The death of a process that a test only plays: hosts carry out nothing after it."""


def crash() -> NoReturn:
    raise Crash


def end_process() -> None:
    """Ends this process at once, by SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)


class Kill(Struct, frozen=True):
    after: bool = False
    """Whether the call takes effect first."""
    die: Callable[[], None] = crash

    def around(self, call: Call, effect: Effect) -> Any:
        if self.after:
            with suppress(Exception):
                effect()
        self.die()
