"""Messages that refer to settings by key, so that each front can show its own names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self


class Setting(str):
    """The key of a setting, as a part of a message."""

    __slots__ = ()


class Message(str):
    """A text that keeps its parts: each front replaces the `Setting` parts with its own names.

    Text from users is never mistaken for a setting. A message is a str, so code that knows no front shows the
    keys.
    """

    parts: tuple[str, ...]

    def __new__(cls, *parts: str) -> Self:
        """Joins texts, settings and messages."""
        flat = [p for part in parts for p in (part.parts if isinstance(part, Message) else (part,))]
        return cls._made("".join(flat), tuple(flat))

    @classmethod
    def _made(cls, text: str, parts: tuple[str, ...]) -> Self:
        message = super().__new__(cls, text)
        message.parts = parts
        return message

    def __reduce__(self) -> tuple[Callable[..., Message], tuple[str, tuple[str, ...]]]:
        return Message._made, (str(self), self.parts)

    def named(self, name_of: Callable[[str], str]) -> Self:
        """Returns the message with each setting renamed. name_of: maps a key to the name to show."""
        shown = (name_of(part) if isinstance(part, Setting) else part for part in self.parts)
        return self._made("".join(shown), self.parts)

    def to_json(self) -> list[Any]:
        return [{"setting": part} if isinstance(part, Setting) else part for part in self.parts]

    @classmethod
    def from_json(cls, parts: Iterable[str | Mapping[str, str]]) -> Self:
        return cls(*(part if isinstance(part, str) else Setting(part["setting"]) for part in parts))
