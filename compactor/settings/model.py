"""The base model of settings: it declares name, unit, default, bounds and help of each, for every front.

A field with a description becomes an option of the command line (`compactor.cli.setting_options`). Options of
the Spark data source and keys of YAML are fields, too.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError

from compactor.common.message import Message
from compactor.errors import ConfigError
from compactor.settings.mistakes import first_mistake


class Settings(BaseModel):
    """Settings whose constructor takes values or their textual forms, and raises `ConfigError`.

    It judges the values that it is given, and no defaults: a table may have other values in their place.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    of_run: ClassVar[frozenset[str]] = frozenset()
    """The fields that belong to a run or a machine, and are no properties of a table."""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(self._message(values, error)) from None

    def check_together(self) -> None:
        """Raises `ConfigError` if values contradict each other, defaults included. Call it once all that was
        told is there."""

    @classmethod
    def _message(cls, values: dict[str, Any], error: ValidationError) -> Message:
        """Returns the message for the first error, with the setting and the user's value."""
        place = error.errors(include_url=False)[0]["loc"]
        whole = values.get(str(place[0])) if len(place) == 1 else None
        return first_mistake(error, cls, whole if isinstance(whole, str) else None).message
