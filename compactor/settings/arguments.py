"""Checks the arguments of the public functions against their annotations, in one place.

The annotations are the contract. Pydantic checks them strictly: '1' is no version, and True is no limit.
Options are checked field by field, even if they were constructed without checks. NumPy scalars become Python
values; in options, lists become tuples, and strings the enum members that they name. Names (`Iterable[str]`)
are read completely at the call: the function receives a tuple.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, ParamSpec, TypeVar, get_args, get_type_hints

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from compactor.errors import CompactorError, UsageError
from compactor.settings.messages import cause, shown
from compactor.settings.names import in_python

_P = ParamSpec("_P")
_R = TypeVar("_R")

_CONFIG: Final = ConfigDict(
    strict=True, revalidate_instances="always", allow_inf_nan=False, arbitrary_types_allowed=True
)


def checked(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wraps a function of a table as `with_checks` does; its errors name settings as tables do."""
    call = with_checks(function)

    @functools.wraps(function)
    def named(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return call(*args, **kwargs)
        except CompactorError as error:
            # `message` keeps the keys, so that a command that called the function can show its flags.
            error.reword(lambda message: message.named(in_python))
            raise

    return named


def with_checks(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wraps the function so that an argument that violates its annotation raises `UsageError` with its name.

    Missing and unknown arguments raise Python's own `TypeError`.
    """
    signature = inspect.signature(function)

    @functools.cache
    def checks() -> dict[str, Callable[[object], Any]]:
        hints = get_type_hints(function, include_extras=True)
        named = [name for name in signature.parameters if name in hints]
        return {
            name: _check(name, hints[name], signature.parameters[name].annotation) for name in named
        }

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        given = signature.bind(*args, **kwargs)
        for name, check in checks().items():
            if name in given.arguments:
                given.arguments[name] = check(given.arguments[name])
        return function(*given.args, **given.kwargs)

    return call


def _check(name: str, hint: Any, annotation: object) -> Callable[[object], Any]:
    """Returns a function that checks and converts one argument. annotation: as shown in errors."""
    takes_names = hint == Iterable[str] or Iterable[str] in get_args(hint)
    takes_none = type(None) in get_args(hint)
    kinds = (kind for kind in (hint, *get_args(hint)) if isinstance(kind, type))
    options = tuple(filter(is_dataclass, kinds))

    @functools.cache
    def adapter() -> TypeAdapter[Any]:
        if is_dataclass(hint):  # Pydantic takes no configuration for one alone.
            return TypeAdapter(hint | None, config=_CONFIG)
        return TypeAdapter(tuple[str, ...] if takes_names else hint, config=_CONFIG)

    def check(value: object) -> Any:
        if value is None and takes_none:
            return None  # Most arguments are omitted, and an adapter takes milliseconds to build.
        if takes_names:
            value = _taken(name, value)
        elif isinstance(value, options):
            value = _plain_options(value)
        elif value is None and options:
            raise UsageError(f"{name}: expected {annotation}, got None")
        return _validated(name, value, adapter(), annotation)

    return check


def _taken(name: str, names: object) -> tuple[object, ...]:
    """Reads all names now: the caller may change the list or exhaust the generator later."""
    if isinstance(names, (str, bytes)):
        raise UsageError(
            f"{name}: {shown(names)} is a single text; give a list, such as [{shown(names)}]"
        )
    if not isinstance(names, Iterable):
        raise UsageError(f"{name}: expected a list of names, got {shown(names)}")
    # The order of a set differs from process to process.
    return tuple(sorted(names, key=str) if isinstance(names, (set, frozenset)) else names)


def _plain(value: object) -> object:
    """Returns the value, or the Python value of a NumPy scalar."""
    return value.item() if isinstance(value, np.generic) else value


def _plain_options(options: Any) -> Any:
    """Replaces NumPy scalars and lists in the fields of options, and of options within them."""
    given = {field.name: getattr(options, field.name) for field in fields(options)}
    return replace(options, **{name: _plain_field(value) for name, value in given.items()})


def _plain_field(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain_field, value))
    if is_dataclass(value) and not isinstance(value, type):
        return _plain_options(value)
    return _plain(value)


def _validated(name: str, value: object, adapter: TypeAdapter[Any], annotation: object) -> Any:
    plain = _plain(value)
    try:
        return adapter.validate_python(plain)
    except ValidationError as error:
        problems = error.errors(include_url=False)
    is_of_whole = all(problem["input"] is plain for problem in problems)
    if is_of_whole and (len(problems) > 1 or problems[0]["type"] == "model_type"):
        # No type of a union fits, or an object of our own is asked for.
        raise UsageError(f"{name}: expected {annotation}, got {shown(value)}")
    place = ".".join([name, *map(str, problems[0]["loc"])])
    raise UsageError(f"{place}: {cause(problems[0])}")
