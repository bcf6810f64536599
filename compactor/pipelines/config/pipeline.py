"""A pipeline: its nodes and their shared settings."""

from __future__ import annotations

from typing import Any, Final, Literal, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from compactor.pipelines.config.model import Model
from compactor.pipelines.config.nodes import Output
from compactor.pipelines.config.variables import Variables
from compactor.resources.cores import usable_cores
from compactor.settings.fields import TASK_MEMORY_BYTES, Bytes
from compactor.settings.mistakes import SettingError, instead_of

MIB: Final = 1 << 20


class Memory(Model):
    limit: Bytes = Field(default=TASK_MEMORY_BYTES, ge=MIB)


class Pipeline(Model):
    """A pipeline. Nodes are in file order."""

    nodes: dict[str, Any]
    memory: Memory = Memory()
    threads: int | None = Field(default=None, ge=1, strict=True)
    """Cores that the run uses; None for those that the process may."""
    batch_size: int = Field(default=65_536, ge=1, le=2**31 - 1, strict=True)
    on_error: Literal["fail_fast", "continue"] = "fail_fast"
    dead_letter: str | None = None
    """NDJSON file for bad records, with `on_error: continue`."""
    init: tuple[str, ...] = ()
    """Outputs that are published before the other outputs start."""
    max_group_buffer: int = Field(default=10_000, ge=1, strict=True)
    """Maximum rows of a group (see `correlation_key`) that an output holds."""
    _places: dict[tuple[str, ...], str] = PrivateAttr(default_factory=dict)
    _variables: Variables = PrivateAttr(default_factory=Variables)
    _path: str | None = PrivateAttr(default=None)

    @property
    def path(self) -> str | None:
        """The file that it was read from, if it was."""
        return self._path

    @property
    def cores(self) -> int:
        return self.threads or usable_cores()

    @property
    def variables(self) -> Variables:
        """The variables that the file refers to; their values are hidden in all that is printed."""
        return self._variables

    @field_validator("memory", mode="before")
    @classmethod
    def _memory_is_a_mapping(cls, memory: Any) -> Any:
        if not isinstance(memory, (dict, Memory)):
            raise ValueError("a mapping, as in `memory: {limit: 512MiB}`")
        return memory

    @field_validator("dead_letter")
    @classmethod
    def _dead_letter_has_a_name(cls, path: str | None) -> str | None:
        if path == "":
            raise ValueError(
                "the name is empty; name an NDJSON file, as in `dead_letter: bad.ndjson`"
            )
        return path

    @model_validator(mode="after")
    def _outputs_come_first(self) -> Self:
        outputs = [key for key, node in self.nodes.items() if isinstance(node, Output)]
        for name in self.init:
            if name not in outputs:
                instead = instead_of(name, outputs)
                raise SettingError("init", f"init: {name!r} is not an output; {instead}")
        return self

    @model_validator(mode="after")
    def _bad_records_have_a_file(self) -> Self:
        if self.on_error == "continue" and self.dead_letter is None:
            raise SettingError(
                "on_error", "on_error: continue needs a `dead_letter` file for bad records"
            )
        return self

    def place_of(self, *setting: str) -> str | None:
        """Returns file and line of a setting, such as `nodes`, `a`, if it comes from a file."""
        return self._places.get(setting)
