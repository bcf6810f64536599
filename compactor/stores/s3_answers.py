"""Maps S3's responses to errors. Knows the protocol, not the SDK."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

from compactor.errors import ObjectNotFoundError, PermissionDeniedError, StoreError
from compactor.stores.answers import (
    BUSY_STATUSES,
    EmptyRangeError,
    LostAnswerError,
    PreconditionError,
    UploadGoneError,
)
from compactor.stores.base import ObjectInfo

_MISSING_CODES: Final = frozenset({"NoSuchKey", "NotFound"})
_BUSY_CODES: Final = frozenset({"SlowDown", "RequestTimeout", "ConditionalRequestConflict"})
_CREDENTIALS_ADVICE: Final = "check the credentials and the bucket's policy"
_PERMISSION_ADVICE: Final = {
    "AccessDenied": _CREDENTIALS_ADVICE,
    "AllAccessDisabled": _CREDENTIALS_ADVICE,
    "InvalidAccessKeyId": "check AWS_ACCESS_KEY_ID or AWS_PROFILE",
    "SignatureDoesNotMatch": "check AWS_SECRET_ACCESS_KEY",
    "ExpiredToken": "the session has ended: get new credentials",
    "InvalidToken": "check AWS_SESSION_TOKEN",
    "RequestTimeTooSkewed": "set this machine's clock",
}


_REGION_CODES: Final = frozenset(
    {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}
)
_SHOWN_CODES: Final = (
    _BUSY_CODES
    | _PERMISSION_ADVICE.keys()
    | _REGION_CODES
    | {"BadDigest", "EntityTooLarge", "EntityTooSmall", "InternalError", "InvalidArgument"}
    | {
        "InvalidBucketName",
        "InvalidPart",
        "InvalidRequest",
        "KMS.DisabledException",
        "MalformedXML",
    }
    | {"MethodNotAllowed", "NotImplemented", "ServiceUnavailable"}
)


def refusal(address: str, endpoint: str, *, code: str, status: int) -> StoreError | EmptyRangeError:
    """Returns the error for an answer that is not a success.

    address: the object's, `s3://bucket/key`. code: S3's own, such as `NoSuchKey`; without a body (HEAD) only
    `status` counts. A server may repeat what it was sent, so nothing else of its answer is shown, and only
    codes that are known here.
    """
    shown = code if code in _SHOWN_CODES else status
    if code == "NoSuchBucket":
        bucket = address.removeprefix("s3://").partition("/")[0]
        return StoreError(
            f"s3://{bucket}: no such bucket at {endpoint}: create it, or correct the address"
        )
    if code == "NoSuchUpload":
        return UploadGoneError(
            f"{address}: the unfinished upload was removed meanwhile: try again, and look at the "
            "bucket's lifecycle rules"
        )
    if code in _MISSING_CODES or status == 404:
        return ObjectNotFoundError(f"{address}: no such object")
    if code == "InvalidObjectState":
        return StoreError(
            f"{address}: the object is archived: restore it, and look at the bucket's lifecycle rules"
        )
    if code in _PERMISSION_ADVICE or status == 403:
        advice = _PERMISSION_ADVICE.get(code, _CREDENTIALS_ADVICE)
        return PermissionDeniedError(f"{address}: permission denied ({shown}): {advice}")
    if code == "InvalidRange" or status == 416:
        return EmptyRangeError()
    if code == "PreconditionFailed" or status == 412:
        return PreconditionError(f"{address}: the object was replaced while it was read")
    if code == "NotImplemented" or status == 501:
        return StoreError(
            f"{address}: {endpoint} does not know this request ({shown}); a table needs a store with "
            "conditional writes (If-None-Match)"
        )
    # 409 to a conditional write means a concurrent request on the key, and asks to send it again. The outcome
    # is as unknown as after a 5xx, and is determined in the same way.
    if status >= 500 or status in BUSY_STATUSES or code in _BUSY_CODES:
        return LostAnswerError(f"{address}: {endpoint} failed ({shown})")
    advice = ": set AWS_REGION to the bucket's" if code in _REGION_CODES else ""
    return StoreError(f"{address}: {endpoint} refused ({shown}){advice}")


def written(key: str, size_bytes: int, response: Mapping[str, Any]) -> ObjectInfo:
    """Returns the object described by the response to a write; the time is the server's."""
    date = server_date(response["ResponseMetadata"]["HTTPHeaders"])
    modified = time.time() if date is None else date
    return ObjectInfo(key, size_bytes, response["ETag"], modified)


def server_date(headers: Mapping[str, str]) -> float | None:
    """Returns a response's `Date` in Unix seconds; None if it is missing or invalid."""
    try:
        return parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return None
