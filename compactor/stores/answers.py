"""Errors of requests that every store over a network has, beside those that callers see."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from compactor.errors import (
    ObjectChangedError,
    StoreError,
    StoreUnreachableError,
    UnknownOutcomeError,
)

BUSY_STATUSES: Final = frozenset({408, 409, 425, 429})
"""Statuses that leave open whether the request was carried out."""


class EmptyRangeError(Exception):
    """416: the range starts at or past the object's end."""


class PreconditionError(ObjectChangedError):
    """412: the object exists already (create) or was replaced (read)."""


class UploadGoneError(StoreError):
    """The multipart upload was completed or aborted before."""


class LostAnswerError(StoreUnreachableError):
    """The request was sent, and its outcome is unknown: no answer, or an inconclusive one."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: try again")
        self.what = what


def broken_body(address: str, cause: str) -> str:
    """Returns the message for a connection that broke within a body."""
    return f"{address}: the connection broke while reading ({cause}): try again"


def still_to_come(left_bytes: int) -> str:
    """Returns the cause of a body that ended early."""
    return f"{left_bytes} bytes were still to come"


@contextlib.contextmanager
def outcome_known(address: str) -> Iterator[None]:
    """Wraps the request that makes an object visible: turns a lost answer into `UnknownOutcomeError`."""
    try:
        yield
    except LostAnswerError as error:
        raise UnknownOutcomeError(
            f"{error.what}: it may have been written all the same: look before trying again"
        ) from error
    except UploadGoneError as error:
        # The SDK resends a completion whose answer was lost, and then finds the upload gone.
        raise UnknownOutcomeError(
            f"{address}: the upload is gone, either complete or removed: look before trying again"
        ) from error
