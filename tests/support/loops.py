"""Matrices of types as loops: one test for all of them, which tells every one that fails."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def loops(argument: str, values: Iterable[object]) -> Callable[[Callable[..., None]], Any]:
    """Calls a test with each value, as `pytest.mark.parametrize` would, but in one test with a subtest each.

    Fixtures are the same for all values: folders have to be told apart by the test.
    """
    each = list(values)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        parameters = inspect.signature(test).parameters
        others = [p for name, p in parameters.items() if name not in (argument, "subtests")]
        fixture = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)

        @functools.wraps(test)
        def run(*, subtests: pytest.Subtests, **given: Any) -> None:
            own = {"subtests": subtests} if "subtests" in parameters else {}
            for value in each:
                with subtests.test(**{argument: str(value)}):
                    test(**given, **own, **{argument: value})

        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in others), fixture]
        )
        return run

    return decorate
