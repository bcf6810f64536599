"""The base of settings: a model states name, unit, default, bounds and help of each setting, for every front.

A field that has a description is an option of the command line, made from the field alone
(`compactor.cli.setting_options`). The options of the Spark data source and keys of YAML are fields, too.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from compactor.common.message import Message, Setting
from compactor.errors import ConfigError
from compactor.settings.messages import cause


class Settings(BaseModel):
    """Settings whose constructor takes values or what people write, and raises `ConfigError`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(self._told(values, error)) from None

    @classmethod
    def _told(cls, values: dict[str, Any], error: ValidationError) -> Message:
        """Returns what is wrong first, with the setting and with what was written."""
        first = error.errors(include_url=False)[0]
        name = "".join(map(str, first["loc"][:1]))
        if first["type"] == "extra_forbidden":
            return Message(f"no setting {name!r}; there are: {', '.join(cls.model_fields)}")
        whole = values.get(name)
        written = whole if isinstance(whole, str) and len(first["loc"]) == 1 else None
        told = cause(first, written)
        return Message(Setting(name), f": {told}") if name else Message(told)
