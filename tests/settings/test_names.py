"""The names by which each front tells of settings are names that its callers can use."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any, Final, get_args, get_type_hints

import click
import polars
import pytest

from compactor import Table
from compactor.api.dataset import TableDataset
from compactor.cli.commands import COMMANDS
from compactor.cli.main import cli
from compactor.common import setting_keys
from compactor.common.message import Message, Setting
from compactor.errors import CompactorError, JobError, OvertakenError, UsageError
from compactor.settings.arguments import checked
from compactor.settings.names import IN_PYTHON, as_flag, as_option, in_python, settings_named

KEYS: Final = [key for key in vars(setting_keys).values() if isinstance(key, Setting)]
IMPORTED_WHEN_CALLED: Final = {
    "TableDataset": TableDataset,
    "daft": SimpleNamespace(DataFrame=Any),
    "pl": polars,
    "ray": SimpleNamespace(data=SimpleNamespace(Dataset=Any)),
}
ONLY_ON_THE_COMMAND_LINE: Final = {"retention", "shuffle_partitions", "since"}


def types_of_arguments() -> dict[str, set[type]]:
    """Returns the types that the arguments of the public methods take, by the names of the arguments."""
    found: dict[str, set[type]] = {}
    for _, method in inspect.getmembers(Table, callable):
        if not method.__name__.startswith("_"):
            hints = get_type_hints(inspect.unwrap(method), localns=IMPORTED_WHEN_CALLED)
            for name, hint in hints.items():
                found.setdefault(name, set()).update(kinds_of(hint))
    return found


def kinds_of(hint: Any) -> set[type]:
    return {kind for kind in (hint, *get_args(hint)) if isinstance(kind, type)}


def fields_of(kind: type) -> dict[str, Any]:
    if is_dataclass(kind):
        return {field.name: get_type_hints(kind)[field.name] for field in fields(kind)}
    return {name: f.annotation for name, f in getattr(kind, "model_fields", {}).items()}


@pytest.mark.parametrize("key", sorted({*KEYS, *IN_PYTHON} - ONLY_ON_THE_COMMAND_LINE))
def test_in_python_every_key_leads_to_an_argument_or_a_field_of_one(key: str) -> None:
    argument, *path = in_python(key).split(".")
    arguments = types_of_arguments()
    assert argument in arguments
    kinds = arguments[argument]
    for name in path:
        found = [fields_of(kind)[name] for kind in kinds if name in fields_of(kind)]
        assert found, f"{in_python(key)}: nothing has a field {name}"
        kinds = set().union(*map(kinds_of, found))


def test_on_the_command_line_every_key_is_an_option() -> None:
    options = {
        flag
        for name in COMMANDS
        for option in cli.commands[name].params
        if isinstance(option, click.Option)
        for flag in option.opts
    }
    assert {as_flag(key) for key in KEYS} <= options


class MadeError(JobError):
    """An error of a class of its own."""


def made(kind: type[CompactorError] = JobError) -> CompactorError:
    user_wrote = "--retain memory_limit_bytes"
    return kind(f"{user_wrote!r}: raise ", setting_keys.MEMORY_LIMIT_BYTES, " to 1 MiB")


@pytest.mark.parametrize("kind", [JobError, OvertakenError, MadeError])
def test_every_front_shows_its_own_name_and_leaves_what_users_wrote(
    kind: type[CompactorError],
) -> None:
    @checked
    def call() -> None:
        raise made(kind)

    with pytest.raises(kind) as caught:
        call()
    shown = "'--retain memory_limit_bytes': raise {} to 1 MiB"
    assert str(caught.value) == shown.format("settings.memory_limit_bytes")
    assert caught.value.message.named(as_flag) == shown.format("--memory-limit")
    with pytest.raises(kind) as caught, settings_named(as_option):
        raise made(kind)
    assert str(caught.value) == shown.format("memory_limit")
    assert caught.value.message.named(as_flag) == shown.format("memory_limit")


def test_a_message_travels_with_its_keys() -> None:
    error = made(UsageError)
    wrapped = Message("task 1: ", error.message, "; nothing was written")
    for copy in (
        pickle.loads(pickle.dumps(error)).message,
        Message.from_json(error.message.to_json()),
    ):
        assert copy == str(error)
        assert Message("task 1: ", copy, "; nothing was written").named(as_flag) == wrapped.named(
            as_flag
        )
    named = error.message.named(in_python)
    assert pickle.loads(pickle.dumps(named)) == named
