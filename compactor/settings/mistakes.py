"""Words mistakes in settings for every front: which setting, what is wrong, and what would be right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple, get_args

from pydantic import BaseModel, ValidationError

from compactor.common.message import Message, Setting
from compactor.settings.messages import cause

Place = tuple[str | int, ...]
"""The keys and indexes that lead to a part of settings."""
_ABOUT_THE_WHOLE: Final = ("extra_forbidden", "missing")


class SettingError(ValueError):
    """A setting that does not go with the others. `key` names the setting that the user should look at."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class Mistake(NamedTuple):
    """Where a mistake is in the settings, and the message, which names the setting by its key."""

    place: Place
    message: Message


def first_mistake(error: ValidationError, model: type[BaseModel], given: object = None) -> Mistake:
    """Returns the first mistake of several. given: what the user wrote, if it was converted before."""
    first = error.errors(include_url=False)[0]
    place, within = _place(model, first["loc"])
    raised = first.get("ctx", {}).get("error")
    if isinstance(raised, SettingError):
        where = f"{shown_place(place)}: " if place else ""
        return Mistake((*place, raised.key), Message(f"{where}{raised}"))
    if not place:
        return Mistake(place, Message(cause(first, given)))
    if first["type"] not in _ABOUT_THE_WHOLE:
        return Mistake(place, Message(Setting(shown_place(place)), ": ", cause(first, given)))
    whole = f"{shown_place(place[:-1])}: " if place[:-1] else ""
    name = str(place[-1])
    if first["type"] == "missing":
        return Mistake(place[:-1], Message(whole, "`", Setting(name), "` is missing"))
    known = [field.alias or key for key, field in within.model_fields.items()]
    return Mistake(place, Message(f"{whole}no setting {name!r}; {instead_of(name, known)}"))


def instead_of(name: str, known: Iterable[str]) -> str:
    """Returns what to write in place of a name that is not known: the nearest name, and all there are."""
    names = list(known)
    near = get_close_matches(name, names, n=1)
    there = f"here are: {', '.join(names) or 'none'}"
    return f"did you mean {near[0]!r}? T{there}" if near else f"t{there}"


def shown_place(place: Place) -> str:
    """Writes a place as users do, such as `equality[2]`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")


def _place(model: type[BaseModel], location: Sequence[str | int]) -> tuple[Place, type[BaseModel]]:
    """Returns the part of Pydantic's location that users wrote, and the model it ends in.

    What follows a field that has no settings of its own may be Pydantic's name of a type, except for indexes.
    """
    place: list[str | int] = []
    within, can_go_on = model, True
    for part in location:
        if isinstance(part, int):
            if not place:
                break
        elif not can_go_on:
            break
        place.append(part)
        if isinstance(part, str):
            inner = _model_of(within, part)
            can_go_on = inner is not None
            within = inner or within
    return tuple(place), within


def _model_of(model: type[BaseModel], key: str) -> type[BaseModel] | None:
    """Returns the model of a setting that has settings of its own."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    field = fields.get(key)
    kinds = () if field is None else (field.annotation, *get_args(field.annotation))
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
