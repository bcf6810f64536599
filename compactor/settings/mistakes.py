"""Formats errors in settings for every front: the setting, the cause, the correction; and collects those that
are told together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from compactor.common.message import Message, Setting
from compactor.errors import CompactorError
from compactor.settings.messages import cause

Place = tuple[str | int, ...]
"""The path of keys and indexes to a part of the settings."""
_Error = TypeVar("_Error", bound=CompactorError)
_ABOUT_THE_WHOLE: Final = ("extra_forbidden", "missing")


class SettingError(ValueError):
    """A setting that conflicts with others. key: the setting to change."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class Mistake(NamedTuple):
    """The place of a mistake, and its message, which refers to the setting by key."""

    place: Place
    message: Message


class Mistakes:
    """The mistakes in parts of a file that do not depend on each other, so that all are told at once."""

    def __init__(self) -> None:
        self._found: list[CompactorError] = []

    def add(self, mistake: CompactorError) -> None:
        """Adds a mistake, and the others that it has."""
        self._found += [mistake, *mistake.others]

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Notes the mistake that ends the block."""
        try:
            yield
        except CompactorError as mistake:
            self.add(mistake)

    def check(self) -> None:
        """Raises the first mistake, which has the others, if there is any."""
        if self._found:
            raise with_others(self._found)


def with_others(mistakes: Sequence[_Error]) -> _Error:
    """Returns the first mistake, which has the others."""
    first, *first.others = mistakes
    return first


def first_mistake(error: ValidationError, model: type[BaseModel], given: object = None) -> Mistake:
    """Returns the first of several mistakes. given: the user's text, if it was converted first."""
    return _mistake(error.errors(include_url=False)[0], model, given)


def all_mistakes(error: ValidationError, model: type[BaseModel]) -> list[Mistake]:
    """Returns the first mistake of each setting, without those of a setting whose parts have some."""
    found: dict[Place, Mistake] = {}
    for each in error.errors(include_url=False):
        found.setdefault(_place(model, each["loc"])[0], _mistake(each, model))
    wholes = {place[:length] for place in found for length in range(len(place))}
    return [mistake for place, mistake in found.items() if place not in wholes]


def _mistake(error: ErrorDetails, model: type[BaseModel], given: object = None) -> Mistake:
    place, within = _place(model, error["loc"])
    raised = error.get("ctx", {}).get("error")
    if isinstance(raised, SettingError):
        where = f"{shown_place(place)}: " if place else ""
        return Mistake((*place, raised.key), Message(f"{where}{raised}"))
    if not place:
        return Mistake(place, Message(cause(error, given)))
    if error["type"] not in _ABOUT_THE_WHOLE:
        return Mistake(place, Message(Setting(shown_place(place)), ": ", cause(error, given)))
    whole = f"{shown_place(place[:-1])}: " if place[:-1] else ""
    name = str(place[-1])
    if error["type"] == "missing":
        return Mistake(place[:-1], Message(whole, "`", Setting(name), "` is missing"))
    known = [field.alias or key for key, field in within.model_fields.items()]
    return Mistake(place, Message(f"{whole}no setting {name!r}; {instead_of(name, known)}"))


def instead_of(name: str, known: Iterable[str]) -> str:
    """Suggests a replacement for an unknown name: the nearest known name, then all of them."""
    names = list(known)
    near = get_close_matches(name, names, n=1)
    there = f"here are: {', '.join(names) or 'none'}"
    return f"did you mean {near[0]!r}? T{there}" if near else f"t{there}"


def shown_place(place: Place) -> str:
    """Writes a place as users do, such as `equality[2]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")


def _place(model: type[BaseModel], location: Sequence[str | int]) -> tuple[Place, type[BaseModel]]:
    """Returns the part of Pydantic's location that users wrote, and the model that contains it.

    After a field without nested settings, Pydantic may append names of types; indexes are the user's, and so
    are the names in a mapping.
    """
    place: list[str | int] = []
    within, can_go_on, kinds = model, True, list[Any]()
    for part in location:
        if isinstance(part, int):
            if not place:
                break
        elif not can_go_on:
            if len(kinds) > 1 and part.startswith("dict["):  # the name of a type
                kinds = [kind for kind in kinds if get_origin(kind) is dict]
                continue
            if len(kinds) != 1 or get_origin(kinds[0]) is not dict:
                break
            kinds = []
        place.append(part)
        if isinstance(part, str) and can_go_on:
            kinds = _kinds(within, part)
            inner = _model_of(kinds)
            can_go_on = inner is not None
            within = inner or within
    return tuple(place), within


def _kinds(model: type[BaseModel], key: str) -> list[Any]:
    """Returns the types that a setting may have, beside None; none for one that is not there."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    field = fields.get(key)
    if field is None:
        return []
    is_union = get_origin(field.annotation) in (Union, UnionType)
    kinds = get_args(field.annotation) if is_union else (field.annotation,)
    return [kind for kind in kinds if kind is not NoneType]


def _model_of(kinds: Sequence[Any]) -> type[BaseModel] | None:
    """Returns the model of a setting with nested settings; None for others."""
    inner = (each for kind in kinds for each in (kind, *get_args(kind)))
    return next((k for k in inner if isinstance(k, type) and issubclass(k, BaseModel)), None)
