"""What the public functions are called with, held against their annotations in one place.

The annotations are the contract, and Pydantic reads them: strictly, so that '1' is no version and True no
limit, and options field by field, whoever made them. NumPy's scalars are what they stand for; in options
lists are taken for tuples, and texts for the kinds that they name. Names (`Iterable[str]`) are taken at the
call, all of them: a tuple arrives.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, ParamSpec, TypeVar, get_args, get_type_hints

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from compactor.errors import UsageError
from compactor.settings.messages import explained, shown
from compactor.settings.names import in_python, settings_named

_P = ParamSpec("_P")
_R = TypeVar("_R")

_CONFIG: Final = ConfigDict(
    strict=True, revalidate_instances="always", allow_inf_nan=False, arbitrary_types_allowed=True
)


def checked(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function, raising `UsageError` that names the argument which is not as annotated.

    Missing and unknown arguments are Python's own `TypeError`.
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
        with settings_named(in_python):
            return function(*given.args, **given.kwargs)

    return call


def _check(name: str, hint: Any, annotation: object) -> Callable[[object], Any]:
    """What is given for the parameter to what the function gets. annotation: as it is shown."""
    if hint == Iterable[str] or Iterable[str] in get_args(hint):
        of_names = TypeAdapter(tuple[str, ...], config=_CONFIG)
        may_be_none = type(None) in get_args(hint)
        return lambda value: (
            None
            if may_be_none and value is None
            else _validated(name, _taken(name, value), of_names, annotation)
        )
    adapter = TypeAdapter(hint, config=_CONFIG)
    kinds = (kind for kind in (hint, *get_args(hint)) if isinstance(kind, type))
    options = tuple(filter(is_dataclass, kinds))
    return lambda value: _validated(
        name, _plain_options(value) if isinstance(value, options) else value, adapter, annotation
    )


def _taken(name: str, names: object) -> tuple[object, ...]:
    """All of them, now: who gives a generator or changes the list later means what there is at the call."""
    if isinstance(names, (str, bytes)):
        raise UsageError(
            f"{name}: {shown(names)} is one text: give a list, such as [{shown(names)}]"
        )
    if not isinstance(names, Iterable):
        raise UsageError(f"{name}: {shown(names)} is given, names wanted: give a list")
    # The order of a set is another one in each process.
    return tuple(sorted(names, key=str) if isinstance(names, (set, frozenset)) else names)


def _plain(value: object) -> object:
    """Without scalars of NumPy."""
    return value.item() if isinstance(value, np.generic) else value


def _plain_options(options: Any) -> Any:
    """Without scalars of NumPy and lists in fields, also of options within."""
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
    if len(problems) > 1 and all(problem["input"] is plain for problem in problems):  # of a union
        raise UsageError(f"{name}: {shown(value)} is given, {annotation} wanted")
    raise UsageError(explained(name, problems[0]))
