"""Every refusal S3 knows becomes the error by which the caller acts."""

from __future__ import annotations

import pytest

from compactor.errors import (
    ObjectChangedError,
    ObjectNotFoundError,
    PermissionDeniedError,
    StoreError,
    StoreUnreachableError,
    UnknownOutcomeError,
)
from compactor.stores.s3_answers import EmptyRangeError, outcome_known, refusal, written

ADDRESS = "s3://bucket/a/k"
ENDPOINT = "https://s3.example"


def answer(code: str, status: int) -> Exception:
    return refusal(ADDRESS, ENDPOINT, code=code, status=status, message="because")


@pytest.mark.parametrize(
    ("code", "status", "error", "advice"),
    [
        ("NoSuchKey", 404, ObjectNotFoundError, "no such object"),
        ("404", 404, ObjectNotFoundError, "no such object"),
        ("NoSuchBucket", 404, StoreError, "s3://bucket: no such bucket at https://s3.example"),
        ("NoSuchUpload", 404, StoreError, "lifecycle"),
        ("403", 403, PermissionDeniedError, "bucket's policy"),
        ("AccessDenied", 403, PermissionDeniedError, "bucket's policy"),
        ("InvalidAccessKeyId", 403, PermissionDeniedError, "AWS_ACCESS_KEY_ID"),
        ("SignatureDoesNotMatch", 403, PermissionDeniedError, "AWS_SECRET_ACCESS_KEY"),
        ("RequestTimeTooSkewed", 403, PermissionDeniedError, "clock"),
        ("ExpiredToken", 400, PermissionDeniedError, "new credentials"),
        ("InvalidRange", 416, EmptyRangeError, ""),
        ("PreconditionFailed", 412, ObjectChangedError, "replaced"),
        ("412", 412, ObjectChangedError, "replaced"),
        ("NotImplemented", 501, StoreError, "If-None-Match"),
        ("SlowDown", 503, StoreUnreachableError, "https://s3.example failed"),
        ("InternalError", 500, StoreUnreachableError, "try again"),
        ("ConditionalRequestConflict", 409, StoreUnreachableError, "try again"),
        ("RequestTimeout", 400, StoreUnreachableError, "try again"),
        ("408", 408, StoreUnreachableError, "try again"),
        ("429", 429, StoreUnreachableError, "try again"),
        ("EntityTooSmall", 400, StoreError, "because"),
    ],
)
def test_an_answer_becomes_the_error_to_act_by(
    code: str, status: int, error: type[Exception], advice: str
) -> None:
    refused = answer(code, status)
    assert isinstance(refused, error)
    assert error is not StoreError or not isinstance(refused, StoreUnreachableError)
    assert advice in str(refused)
    assert "\n" not in str(refused)


@pytest.mark.parametrize(
    ("code", "status"), [("InternalError", 500), ("SlowDown", 503), ("NoSuchUpload", 404)]
)
def test_an_object_made_visible_perhaps_is_an_unknown_outcome(code: str, status: int) -> None:
    with pytest.raises(UnknownOutcomeError, match="look before trying again"):  # noqa: SIM117
        with outcome_known(ADDRESS):
            raise answer(code, status)


def test_a_refused_write_is_no_unknown_outcome() -> None:
    with pytest.raises(PermissionDeniedError), outcome_known(ADDRESS):
        raise answer("AccessDenied", 403)


def test_the_time_of_a_write_is_the_servers() -> None:
    headers = {"date": "Fri, 20 Nov 2026 12:00:00 GMT"}
    response = {"ETag": '"e"', "ResponseMetadata": {"HTTPHeaders": headers}}
    assert written("k", 1, response).modified_unix_seconds == 1795176000
