"""Looks at what comes next before it is taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Lookahead(Generic[T]):
    """Items of which the next one can be looked at."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._next: T | None = None
        """The next item, once it was asked for."""
        self.error: Exception | None = None
        """The error with which the items end. Callers raise it after the items before it."""

    def look(self) -> T | None:
        """Returns the next item; None after the last, or before the error."""
        if self._next is None and self.error is None:
            try:
                self._next = next(self._items, None)
            except Exception as error:  # noqa: BLE001 - raised in its place
                self.error = error
        return self._next

    def take(self) -> T | None:
        """Returns what `look` does, and goes on to the item behind it."""
        item, self._next = self.look(), None
        return item
