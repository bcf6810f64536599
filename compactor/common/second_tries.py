"""Tries again after a failure. tenacity is imported by the first failure, and most commands have none."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_Answer = TypeVar("_Answer")


def backoff_seconds(failures: int, first_seconds: float, max_seconds: float) -> float:
    """Returns the wait after a number of failures in a row: it doubles with each, up to `max_seconds`."""
    return min(max_seconds, first_seconds * 2.0 ** min(failures - 1, 64))


def patiently(
    ask: Callable[[], _Answer],
    is_worth_another_try: Callable[[BaseException], bool],
    *,
    tries: int,
    wait_seconds: float = 0.1,
    max_wait_seconds: float = 2.0,
    sleep: Callable[[float], None] = time.sleep,
) -> _Answer:
    """Calls `ask` up to `tries` times, as long as its errors are worth another try; raises the last one.

    wait_seconds: the longest wait before the second try; it doubles with each try, up to `max_wait_seconds`.
        Each wait is random.
    """
    try:
        return ask()
    except Exception as error:
        if not is_worth_another_try(error):
            raise
        failed = [error]
    from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

    def ask_again() -> _Answer:
        """Raises the first error again, so that the first try counts and is followed by a wait."""
        if failed:
            raise failed.pop()
        return ask()

    retrying = Retrying(
        retry=retry_if_exception(is_worth_another_try),
        wait=wait_random_exponential(multiplier=wait_seconds, max=max_wait_seconds),
        stop=stop_after_attempt(tries),
        sleep=sleep,
        reraise=True,
    )
    return retrying(ask_again)
