"""Every error of obstore becomes the error by which the caller acts, and nothing of its text is shown."""

from __future__ import annotations

import pytest

from compactor.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    PermissionDeniedError,
    StoreError,
    StoreUnreachableError,
)
from compactor.stores.answers import EmptyRangeError, LostAnswerError, UploadGoneError
from compactor.stores.obstore_answers import refusal
from compactor.stores.obstore_services import AZURE
from tests.support.wording import says

SECRET = "sig=wJalrXUtnFEMIK7MDENGcanary"


def answered(status: int, body: str = "", source: str = "RetryError") -> str:
    return f"""Generic MicrosoftAzure error: Error performing GET https://a/c/k?{SECRET} - {status}: {body}

Debug source:
Generic {{
    store: "MicrosoftAzure",
    source: {source}(
        RetryErrorImpl {{
            method: GET,
            uri: Some(
                https://a/c/k?{SECRET},
            ),
            inner: Status {{
                status: {status},
                body: Some(
                    "{body}",
                ),
            }},
        }},
    ),
}}"""


def unanswered(kind: str) -> str:
    return f"""HTTP error: {SECRET}

Debug source:
Generic {{
    store: "GCS",
    source: RetryError(
        RetryErrorImpl {{
            inner: Http(
                HttpError {{
                    kind: {kind},
                    source: reqwest::Error {{
                        kind: Request,
"""


def failed(source: str) -> str:
    return f'{SECRET}\n\nDebug source:\nGeneric {{\n    store: "GCS",\n    source: {source} {{\n'


CASES = {
    "absent": ("FileNotFoundError", answered(404), ObjectNotFoundError),
    "no container": (
        "FileNotFoundError",
        answered(404, "<Code>ContainerNotFound</Code>"),
        StoreError,
    ),
    "no bucket in a listing": (
        "GenericError",
        answered(404, "<Code>NoSuchBucket</Code>"),
        StoreError,
    ),
    "exists": ("AlreadyExistsError", answered(409, "BlobAlreadyExists"), ObjectExistsError),
    "replaced": ("PreconditionError", answered(412), ObjectChangedError),
    "forbidden": ("PermissionDeniedError", answered(403), PermissionDeniedError),
    "unauthenticated": ("UnauthenticatedError", answered(401), PermissionDeniedError),
    "forbidden in a listing": ("GenericError", answered(403), PermissionDeniedError),
    "past the end": ("GenericError", answered(416), EmptyRangeError),
    "bad request": ("GenericError", answered(400), StoreError),
    "block list of a completed upload": (
        "GenericError",
        answered(400, "InvalidBlockList"),
        UploadGoneError,
    ),
    "upload of a completed upload": (
        "GenericError",
        answered(404, "NoSuchUpload"),
        UploadGoneError,
    ),
    "not implemented": ("GenericError", answered(501), StoreError),
    "timeout of the server": ("GenericError", answered(408), LostAnswerError),
    "conflict": ("GenericError", answered(409), LostAnswerError),
    "too many requests": ("GenericError", answered(429), LostAnswerError),
    "busy": ("GenericError", answered(503), LostAnswerError),
    "no token": ("GenericError", answered(403, source="TokenRequest"), PermissionDeniedError),
    "no token yet": ("GenericError", answered(503, source="TokenRequest"), StoreUnreachableError),
    "no connection": ("GenericError", unanswered("Connect"), StoreUnreachableError),
    "no answer": ("GenericError", unanswered("Timeout"), LostAnswerError),
    "broken body": ("GenericError", unanswered("Decode"), LostAnswerError),
    "no account": ("GenericError", failed("MissingAccount"), PermissionDeniedError),
    "no key": ("GenericError", failed("InvalidAccessKey"), PermissionDeniedError),
    "answer without an ETag": ("GenericError", failed("Metadata"), LostAnswerError),
    "no TLS": ("GenericError", "source: BadScheme", StoreError),
    "unknown": ("GenericError", "of a later release", LostAnswerError),
    "no path": ("ValueError", "Could not parse path", StoreError),
}


@pytest.mark.parametrize("case", CASES)
def test_an_error_becomes_the_error_to_act_by(case: str) -> None:
    kind, text, error = CASES[case]
    refused = refusal("az://c/k", "az://c", AZURE, kind=kind, text=text)
    assert isinstance(refused, error)
    assert error is not StoreError or not isinstance(refused, StoreUnreachableError)
    assert not (error is StoreUnreachableError and isinstance(refused, LostAnswerError))
    assert "canary" not in str(refused)
    if str(refused):
        says(str(refused))
