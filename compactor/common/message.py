"""Messages that name settings by key, so that each front can show its own name for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self


class Setting(str):
    """The key of a setting, where a message names it."""

    __slots__ = ()


class Message(str):
    """A text whose parts are known: those that are a `Setting` are shown by each front in its own words.

    Text that comes from users is never taken for the name of a setting. A message is a str, so whatever knows
    nothing of fronts shows it with the keys.
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
        """Returns the message with another name for each setting. name_of: gets the key."""
        shown = (name_of(part) if isinstance(part, Setting) else part for part in self.parts)
        return self._made("".join(shown), self.parts)

    def to_json(self) -> list[Any]:
        return [{"setting": part} if isinstance(part, Setting) else part for part in self.parts]

    @classmethod
    def from_json(cls, parts: Iterable[str | Mapping[str, str]]) -> Self:
        return cls(*(part if isinstance(part, str) else Setting(part["setting"]) for part in parts))
