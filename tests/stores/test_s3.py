"""What only S3 can do wrong: lost answers, refusals, retries of our own."""

from __future__ import annotations

import pytest

from compactor.errors import (
    PermissionDeniedError,
    StoreError,
    StoreUnreachableError,
    UnknownOutcomeError,
)
from compactor.stores.s3 import S3Store
from tests.support.s3_server import Request, S3Server

FAULT = ("503 Service Unavailable", b"<Error><Code>SlowDown</Code></Error>")


def test_a_create_is_sent_once_and_a_server_fault_is_an_unknown_outcome(
    s3_server: S3Server, s3_bucket: str
) -> None:
    s3_server.intercept = lambda request: FAULT if request.method == "PUT" else None
    with pytest.raises(UnknownOutcomeError, match="may have been written"):
        S3Store(s3_bucket).create("k", b"v")
    assert len(s3_server.requests("PUT")) == 1


def test_a_conditional_conflict_is_an_unknown_outcome(s3_server: S3Server, s3_bucket: str) -> None:
    body = b"<Error><Code>ConditionalRequestConflict</Code></Error>"
    s3_server.intercept = lambda request: ("409 Conflict", body)
    with pytest.raises(UnknownOutcomeError):
        S3Store(s3_bucket).create("k", b"v")


def test_reads_are_retried_by_the_sdk(s3_server: S3Server, s3_bucket: str) -> None:
    store = S3Store(s3_bucket)
    store.create("k", b"v")
    faults = iter([FAULT])
    s3_server.intercept = lambda r: next(faults, None) if r.method == "GET" else None
    assert store.read("k") == b"v"


def test_an_endpoint_that_is_not_there_is_unreachable_and_nothing_was_written() -> None:
    store = S3Store("bucket", endpoint_url="http://127.0.0.1:9")
    with pytest.raises(StoreUnreachableError, match=r"127\.0\.0\.1:9"):
        store.create("k", b"v")


def test_a_missing_bucket_and_a_refusal_are_told_apart(s3_server: S3Server, s3_bucket: str) -> None:
    with pytest.raises(StoreError, match="no such bucket"):
        S3Store("no-bucket-here").read("k")
    body = b"<Error><Code>AccessDenied</Code></Error>"
    s3_server.intercept = lambda request: ("403 Forbidden", body)
    with pytest.raises(PermissionDeniedError, match="policy"):
        S3Store(s3_bucket).read("k")


def test_a_failed_part_fails_the_upload_and_leaves_nothing(
    s3_server: S3Server, s3_bucket: str
) -> None:
    store = S3Store(s3_bucket, part_bytes=5 << 20)

    def fail_second_part(request: Request) -> tuple[str, bytes] | None:
        body = b"<Error><Code>AccessDenied</Code></Error>"
        return ("403 Forbidden", body) if "partNumber=2" in request.query else None

    s3_server.intercept = fail_second_part
    with pytest.raises(PermissionDeniedError), store.start_upload("k") as upload:
        for _ in range(20):
            upload.write(bytes(1 << 20))
        upload.complete()
    s3_server.intercept = None
    assert list(store.list("")) == []
    assert [r for r in s3_server.requests("DELETE") if "uploadId" in r.query]


def test_a_small_upload_is_one_put_and_a_large_one_is_parts(
    s3_server: S3Server, s3_bucket: str
) -> None:
    store = S3Store(s3_bucket, part_bytes=5 << 20)
    for size, puts, posts in ((5 << 20, 1, 0), ((5 << 20) + 1, 2, 2)):
        s3_server.reset()
        with store.start_upload("k") as upload:
            upload.write(bytes(size))
            upload.complete()
        assert len(s3_server.requests("PUT")) == puts
        assert len(s3_server.requests("POST")) == posts


def test_an_unfinished_stream_may_be_closed(s3_server: S3Server, s3_bucket: str) -> None:
    store = S3Store(s3_bucket)
    with store.start_upload("k") as upload:
        upload.write(bytes(3 << 20))
        upload.complete()
    stream = store.open_stream("k")
    assert stream.read(10) == bytes(10)
    stream.close()
    stream.close()
    assert store.read_range("k", 0, 3) == bytes(3)


def test_a_server_that_ignores_ranges_is_an_error_not_other_bytes(
    s3_server: S3Server, s3_bucket: str
) -> None:
    store = S3Store(s3_bucket)
    store.create("k", b"0123456789")
    s3_server.intercept = lambda r: ("200 OK", b"0123456789") if r.range else None
    with pytest.raises(StoreError, match="does not serve ranges"):
        store.read_range("k", 5, 2)
    with pytest.raises(StoreError, match="does not serve ranges"):
        store.open_stream("k", start=5)


@pytest.mark.parametrize(
    ("name", "value"), [("AWS_PROFILE", "nope"), ("AWS_ENDPOINT_URL", "garbage")]
)
def test_a_wrong_setup_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(StoreError, match=name):
        S3Store("bucket").read("k")
