"""Makes command options from the fields of settings models, and settings from the options' values.

A field declares default, bounds and help (`compactor.settings.model`). This module knows no particular
setting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeVar

import annotated_types as bounds
import click
from pydantic.fields import FieldInfo

from compactor.settings.fields import FOLDER, Written, kinds_in, text_of, written_as
from compactor.settings.model import Settings
from compactor.settings.names import as_flag

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Model = TypeVar("_Model", bound=Settings)
_EXISTING_FOLDER: Final = click.Path(exists=True, file_okay=False, writable=True)
_LARGEST: Final = 2**31 - 1
"""Omit larger bounds from help: they are limits of machines and formats."""


def setting_options(
    model: type[Settings], *, without: tuple[str, ...] = ()
) -> Callable[[_Command], _Command]:
    """Adds an option for each field of a model that has a description."""

    def add(command: _Command) -> _Command:
        for name, field in reversed(model.model_fields.items()):
            if field.description is not None and name not in without:
                command = setting_option(model, name)(command)
        return command

    return add


def setting_option(
    model: type[Settings], name: str, *, shows_default: bool = True
) -> Callable[[_Command], _Command]:
    """Adds the option of one setting. The value is None, or empty, if the option is omitted."""
    field = model.model_fields[name]
    kinds, flag = list(kinds_in(field.annotation)), as_flag(name)
    written = written_as(field)
    more: dict[str, Any] = {"help": field.description}
    if bool in kinds:
        if field.default is False:
            return click.option(flag, name, is_flag=True, **more)
        return click.option(f"{flag}/{_opposite(flag)}", name, default=None, **more)
    if field.default == ():
        assert written is not None
        more["help"] += " Repeatable."
        return click.option(flag, name, multiple=True, metavar=written.metavar, **more)
    show = partial(text_of, field)
    has_default = field.default is not None and field.default_factory is None
    return click.option(
        flag,
        name,
        cls=_SettingOption,
        type=_type(kinds, written),
        metavar=written.metavar if written is not None else None,
        default_text=show(field.default) if shows_default and has_default else None,
        bounds_text=_bounds(field, show, shown_from=0 if written is None else 2),
        **more,
    )


def chosen(model: type[_Model], given: Mapping[str, Any]) -> _Model:
    """Makes settings from the values of their options. Raises `ConfigError`."""
    names = [name for name in model.model_fields if given.get(name) is not None]
    return model(**{name: given[name] for name in names})


class _SettingOption(click.Option):
    """An option that shows its setting's default and bounds in help, but leaves them to the model."""

    def __init__(
        self,
        *declarations: Any,
        default_text: str | None,
        bounds_text: str | None,
        **attributes: Any,
    ) -> None:
        super().__init__(*declarations, **attributes)
        self._texts = {"default": default_text, "range": bounds_text}

    def get_help_extra(self, ctx: click.Context) -> Any:
        texts = {name: text for name, text in self._texts.items() if text is not None}
        return {**super().get_help_extra(ctx), **texts}


def _type(kinds: list[Any], written: Written | None) -> click.ParamType[Any]:
    """Returns click's type for non-text settings; the model itself parses values with units."""
    if written is not None:
        return _EXISTING_FOLDER if written is FOLDER else click.STRING
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            return click.Choice([str(value) for value in kind])
    return click.INT if int in kinds else click.FLOAT if float in kinds else click.STRING


def _opposite(flag: str) -> str:
    return (
        flag.replace("--keep-", "--drop-") if "--keep-" in flag else flag.replace("--", "--no-", 1)
    )


def _bounds(field: FieldInfo, show: Callable[[Any], str], shown_from: int) -> str | None:
    """Formats the bounds in click's notation, such as `0<=x<=22`, without trivial ones."""
    low = high = ""
    for part in (*field.metadata, *kinds_in(field.annotation)):
        match part:
            case bounds.Ge(ge=int() | float() as minimum) if minimum >= shown_from:
                low = f"{show(minimum)}<="
            case bounds.Gt(gt=above):
                low = f"{show(above)}<"
            case bounds.Le(le=int() | float() as maximum) if maximum < _LARGEST:
                high = f"<={show(maximum)}"
            case bounds.Lt(lt=int() | float() as below) if below < _LARGEST:
                high = f"<{show(below)}"
    if low and not high:
        sign = ">=" if low.endswith("<=") else ">"
        return f"x{sign}{low.rstrip('<=')}"
    return f"{low}x{high}" if low or high else None
