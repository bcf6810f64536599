"""The names by which errors tell Python callers of settings are names that Python callers can use."""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import pytest

from compactor import Table
from compactor.errors import CompactorError, JobError, OvertakenError
from compactor.settings.names import IN_PYTHON, in_python, settings_named
from tests.support.wording import refuses


def types_of_arguments() -> dict[str, set[type]]:
    """Returns the types that the arguments of the public methods take, by the names of the arguments."""
    found: dict[str, set[type]] = {}
    for _, method in inspect.getmembers(Table, callable):
        if not method.__name__.startswith("_"):
            for name, hint in get_type_hints(inspect.unwrap(method)).items():
                found.setdefault(name, set()).update(kinds_of(hint))
    return found


def kinds_of(hint: Any) -> set[type]:
    return {kind for kind in (hint, *get_args(hint)) if isinstance(kind, type)}


def fields_of(kind: type) -> dict[str, Any]:
    if is_dataclass(kind):
        return {field.name: get_type_hints(kind)[field.name] for field in fields(kind)}
    return {name: f.annotation for name, f in getattr(kind, "model_fields", {}).items()}


@pytest.mark.parametrize("flag", IN_PYTHON)
def test_every_name_leads_to_an_argument_or_a_field_of_one(flag: str) -> None:
    argument, *path = IN_PYTHON[flag].split(".")
    arguments = types_of_arguments()
    assert argument in arguments
    kinds = arguments[argument]
    for name in path:
        found = [fields_of(kind)[name] for kind in kinds if name in fields_of(kind)]
        assert found, f"{IN_PYTHON[flag]}: nothing has a field {name}"
        kinds = set().union(*map(kinds_of, found))


@pytest.mark.parametrize("kind", [JobError, OvertakenError])
def test_errors_of_every_kind_are_told_by_the_caller_s_names(kind: type[CompactorError]) -> None:
    with refuses(kind), settings_named(in_python):
        raise kind("vacuum with a longer --retain; raise --target-fragment-bytes; --no-such stays")
