"""Prints explanations of `entity-merge`, and checks the options that go with them."""

from __future__ import annotations

from collections.abc import Mapping

from compactor.cli.output import echo_json, echo_line
from compactor.entities.explain import Explanation
from compactor.errors import UsageError


def asked_of(explained: str | None, other: str | None) -> tuple[str, ...]:
    """Returns the entities to explain, none without `--explain`."""
    if other is not None and explained is None:
        raise UsageError(f"{other}: a second ID goes with --explain: leave it out")
    return tuple(each for each in (explained, other) if each is not None)


def check_only_explains(given: Mapping[str, object]) -> None:
    """Raises `UsageError` for options of runs. given: their values, None and false for those not given."""
    for option, value in given.items():
        if value is not None and value is not False:
            raise UsageError(f"{option}: leave it out with --explain, which writes nothing")


def print_explanation(explanation: Explanation, *, as_json: bool) -> None:
    if as_json:
        echo_json(explanation.to_json())
        return
    for line in explanation.lines():
        echo_line(line)
