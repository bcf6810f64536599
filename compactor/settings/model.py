"""The base of settings: a model states name, unit, default, bounds and help of each setting, for every front.

A field that has a description is an option of the command line, made from the field alone
(`compactor.cli.setting_options`). The options of the Spark data source and keys of YAML are fields, too.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from compactor.common.message import Message
from compactor.errors import ConfigError
from compactor.settings.mistakes import first_mistake


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
        place = error.errors(include_url=False)[0]["loc"]
        whole = values.get(str(place[0])) if len(place) == 1 else None
        return first_mistake(error, cls, whole if isinstance(whole, str) else None).message
