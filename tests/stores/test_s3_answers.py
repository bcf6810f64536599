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
from compactor.stores.answers import EmptyRangeError, outcome_known
from compactor.stores.s3_answers import refusal, written
from tests.support.wording import refuses, says

ADDRESS = "s3://bucket/a/k"
ENDPOINT = "https://s3.example"


def answer(code: str, status: int) -> Exception:
    return refusal(ADDRESS, ENDPOINT, code=code, status=status)


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("NoSuchKey", 404, ObjectNotFoundError),
        ("404", 404, ObjectNotFoundError),
        ("NoSuchBucket", 404, StoreError),
        ("NoSuchUpload", 404, StoreError),
        ("403", 403, PermissionDeniedError),
        ("AccessDenied", 403, PermissionDeniedError),
        ("InvalidAccessKeyId", 403, PermissionDeniedError),
        ("SignatureDoesNotMatch", 403, PermissionDeniedError),
        ("RequestTimeTooSkewed", 403, PermissionDeniedError),
        ("ExpiredToken", 400, PermissionDeniedError),
        ("InvalidRange", 416, EmptyRangeError),
        ("PreconditionFailed", 412, ObjectChangedError),
        ("412", 412, ObjectChangedError),
        ("NotImplemented", 501, StoreError),
        ("SlowDown", 503, StoreUnreachableError),
        ("InternalError", 500, StoreUnreachableError),
        ("ConditionalRequestConflict", 409, StoreUnreachableError),
        ("RequestTimeout", 400, StoreUnreachableError),
        ("408", 408, StoreUnreachableError),
        ("429", 429, StoreUnreachableError),
        ("EntityTooSmall", 400, StoreError),
    ],
)
def test_an_answer_becomes_the_error_to_act_by(
    code: str, status: int, error: type[Exception]
) -> None:
    refused = answer(code, status)
    assert isinstance(refused, error)
    assert error is not StoreError or not isinstance(refused, StoreUnreachableError)
    says(str(refused))


@pytest.mark.parametrize(
    ("code", "status"), [("InternalError", 500), ("SlowDown", 503), ("NoSuchUpload", 404)]
)
def test_an_object_made_visible_perhaps_is_an_unknown_outcome(code: str, status: int) -> None:
    with refuses(UnknownOutcomeError):  # noqa: SIM117
        with outcome_known(ADDRESS):
            raise answer(code, status)


def test_a_refused_write_is_no_unknown_outcome() -> None:
    with pytest.raises(PermissionDeniedError), outcome_known(ADDRESS):
        raise answer("AccessDenied", 403)


def test_the_time_of_a_write_is_the_servers() -> None:
    headers = {"date": "Fri, 20 Nov 2026 12:00:00 GMT"}
    response = {"ETag": '"e"', "ResponseMetadata": {"HTTPHeaders": headers}}
    assert written("k", 1, response).modified_unix_seconds == 1795176000
