"""An iterator with a peek at its next item."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Lookahead(Generic[T]):
    """Items whose next one can be peeked at before it is taken."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._next: T | None = None
        """The next item, once peeked at."""
        self.error: Exception | None = None
        """The error that ended the items. Callers raise it after the items before it."""

    def look(self) -> T | None:
        """Peeks at the next item; None after the last, or before the error."""
        if self._next is None and self.error is None:
            try:
                self._next = next(self._items, None)
            except Exception as error:  # noqa: BLE001 - raised in its place
                self.error = error
        return self._next

    def take(self) -> T | None:
        """Returns the next item and advances."""
        item, self._next = self.look(), None
        return item
