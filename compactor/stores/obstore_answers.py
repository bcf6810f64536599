"""Maps errors of the library obstore to ours. Knows its classes by name, and does not load it.

An error of obstore has no fields. Its text ends with a description for debugging, from which this takes what
was being done, the kind of a failed connection and the status of an answer. A text may hold a secret, such as
the address with its signature, so nothing else of it is shown.
"""

from __future__ import annotations

import re
from typing import Final

from compactor.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    PermissionDeniedError,
    StoreError,
    StoreUnreachableError,
)
from compactor.stores.answers import (
    BUSY_STATUSES,
    EmptyRangeError,
    LostAnswerError,
    PreconditionError,
    UploadGoneError,
)
from compactor.stores.obstore_services import Service

_SOURCE: Final = re.compile(r"^    source: ([A-Za-z]+)", re.MULTILINE)
_STATUS: Final = re.compile(r"\binner: Status \{\s+status: (\d{3})\b")
_CONNECTION: Final = re.compile(r"\binner: Http\(\s+HttpError \{\s+kind: ([A-Za-z]+)")
_NO_CONTAINER: Final = re.compile("ContainerNotFound|NoSuchBucket")
_UPLOAD_GONE: Final = re.compile("NoSuchUpload|InvalidBlockList")
"""Also the answer to a completion that is sent again after its answer was lost."""
_NOT_SENT: Final = frozenset({"Connect"})
_CREDENTIALS: Final = re.compile(
    r"TokenRequest|\w*Credentials?|InvalidAccessKey|MissingAccount|\w*Sas\w*"
)
"""What obstore was doing when it had no credentials to send anything with."""


def refusal(
    address: str, root: str, service: Service, *, kind: str, text: str
) -> StoreError | EmptyRangeError:
    """Returns the error for one of obstore.

    address, root: of the object, and of its bucket or container. kind: the name of the error's class.
    """
    status = int(found[1]) if (found := _STATUS.search(text)) else 0
    source = found[1] if (found := _SOURCE.search(text)) else ""
    connection = found[1] if (found := _CONNECTION.search(text)) else ""
    shown = status or kind
    if _NO_CONTAINER.search(text):
        return StoreError(
            f"{root}: no such {service.container} in {service.name}: create it, or correct the address"
        )
    if source == "TokenRequest" and (status >= 500 or status in BUSY_STATUSES):
        return StoreUnreachableError(
            f"{address}: {service.name} gave no token ({status}): try again"
        )
    if _UPLOAD_GONE.search(text):
        return UploadGoneError(f"{address}: the unfinished upload was removed meanwhile: try again")
    if _CREDENTIALS.fullmatch(source):
        return PermissionDeniedError(
            f"{address}: no valid credentials ({source}): {service.credentials}"
        )
    if kind in ("FileNotFoundError", "NotFoundError") or status == 404:
        return ObjectNotFoundError(f"{address}: no such object")
    if kind == "AlreadyExistsError":
        return ObjectExistsError(f"{address}: it exists already")
    if kind == "PreconditionError":
        return PreconditionError(f"{address}: the object was replaced while it was read")
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or status in (401, 403):
        return PermissionDeniedError(
            f"{address}: permission denied ({shown}): check the credentials and their roles"
        )
    if status == 416 or "StartTooLarge" in text:
        return EmptyRangeError()
    if connection in _NOT_SENT:
        return StoreUnreachableError(
            f"{address}: cannot connect to {service.name}: check the network, and {service.endpoint} if it "
            "is set"
        )
    if "BadScheme" in text:
        return StoreError(
            f"{address}: a setting names a server without TLS: name it by {service.endpoint}, if you trust "
            "the network"
        )
    if kind in ("NotSupportedError", "NotImplementedError") or status in (405, 501):
        return StoreError(
            f"{address}: {service.name} does not know this request ({shown}); a table needs a store with "
            "conditional writes"
        )
    if kind in ("InvalidPathError", "ValueError", "UnknownConfigurationKeyError"):
        return StoreError(
            f"{address}: the library obstore refused ({kind}): check the name and the settings"
        )
    if status and status < 500 and status not in BUSY_STATUSES:
        return StoreError(f"{address}: {service.name} refused ({status})")
    # Also what is not known here: the request may have been carried out.
    return LostAnswerError(
        f"{address}: no usable answer ({status or connection or source or kind})"
    )
