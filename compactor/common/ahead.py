"""Makes the items of an iterator in a thread, ahead of their use, in the same order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Generic, Self, TypeVar

from compactor.common.threads import started

T = TypeVar("T")


class Ahead(Iterator[T], Generic[T]):
    """An iterator over the items of another one, which a thread makes. Its error comes after the last item.

    Without a thread, because the machine refuses one, items are made where they are taken. Close it before
    what the items are made of.
    """

    def __init__(self, items: Iterator[T], waiting: int, name: str) -> None:
        """waiting: maximum number of items that are done and not taken. name: of the thread."""
        self._room = waiting
        self._made: deque[T] = deque()
        self._error: BaseException | None = None
        self._is_done = self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._make, args=(items,), name=name, daemon=True)
        self._alone = None if started(self._thread) else items

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if self._alone is not None:
            return next(self._alone)
        with self._changed:
            self._changed.wait_for(lambda: self._made or self._is_done or self._is_closed)
            if self._made:
                self._changed.notify_all()
                return self._made.popleft()
            error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopIteration

    def _make(self, items: Iterator[T]) -> None:
        error: BaseException | None = None
        try:
            for item in items:
                if not self._put(item):
                    return
                del item
        except BaseException as problem:  # noqa: BLE001 - raised where items are taken
            error = problem
        finally:
            with self._changed:
                self._is_done, self._error = True, error
                self._changed.notify_all()

    def _put(self, item: T) -> bool:
        """Appends an item, waiting for room. Returns whether more are wanted."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._made) < self._room or self._is_closed)
            if not self._is_closed:
                self._made.append(item)
                self._changed.notify_all()
            return not self._is_closed

    def stop(self) -> None:
        """Drops the items, and lets the thread end after the one that it makes. Idempotent."""
        with self._changed:
            self._is_closed = True
            self._made.clear()
            self._error = None
            self._changed.notify_all()

    def close(self) -> None:
        """Stops the thread and waits for its end. Idempotent."""
        self.stop()
        if self._alone is None:
            self._thread.join()
        self._alone = None
