"""What only S3 can do wrong: lost answers, refusals, retries of our own."""

from __future__ import annotations

import contextlib
import io
import os
import signal
from pathlib import Path

import pytest
from urllib3.exceptions import SSLError

from compactor.errors import (
    PermissionDeniedError,
    StoreError,
    StoreUnreachableError,
    UnknownOutcomeError,
)
from compactor.stores.s3 import S3Store, S3Stream
from tests.faults import Call, Drop, Effect, LoseAnswer, Refuse, calls
from tests.support.s3_server import Request, S3Server, answering
from tests.support.wording import refuses

SLOW_DOWN = Refuse(answering("503 Service Unavailable", b"<Error><Code>SlowDown</Code></Error>"))


def test_a_create_is_sent_once_and_a_server_fault_is_an_unknown_outcome(
    s3_server: S3Server, s3_bucket: str
) -> None:
    s3_server.faults.add(SLOW_DOWN, at=calls("PUT"))
    with refuses(UnknownOutcomeError):
        S3Store(s3_bucket).create("k", b"v")
    assert len(s3_server.requests("PUT")) == 1


def test_a_conditional_conflict_is_an_unknown_outcome(s3_server: S3Server, s3_bucket: str) -> None:
    body = b"<Error><Code>ConditionalRequestConflict</Code></Error>"
    s3_server.faults.add(Refuse(answering("409 Conflict", body)))
    with pytest.raises(UnknownOutcomeError):
        S3Store(s3_bucket).create("k", b"v")


@pytest.mark.parametrize("landed", [True, False])
def test_a_create_whose_answer_is_lost_is_an_unknown_outcome_and_sent_once(
    s3_server: S3Server, s3_bucket: str, landed: bool
) -> None:
    s3_server.faults.add(LoseAnswer(landed=landed))
    with refuses(UnknownOutcomeError):
        S3Store(s3_bucket).create("k", b"v")
    assert len(s3_server.requests("PUT")) == 1
    s3_server.faults.clear()
    assert len(list(S3Store(s3_bucket).list(""))) == (1 if landed else 0)


@pytest.mark.parametrize("forgets", [False, True])
def test_completing_is_sent_again_after_a_lost_answer(
    s3_server: S3Server, s3_bucket: str, forgets: bool
) -> None:
    """A server may remember the upload it completed, or know it no longer: then who can tell?"""
    completions = calls("POST", where=lambda r: "uploadId" in r.query)
    s3_server.faults.add(LoseAnswer(), at=completions.first())
    if forgets:
        gone = answering("404 Not Found", b"<Error><Code>NoSuchUpload</Code></Error>")
        s3_server.faults.add(Refuse(gone), at=completions.nth(2))
    store = S3Store(s3_bucket, part_bytes=5 << 20)
    outcome = pytest.raises(UnknownOutcomeError) if forgets else contextlib.nullcontext()
    with outcome, store.start_upload("k") as upload:
        upload.write(bytes(6 << 20))
        assert upload.complete().etag == store.head("k").etag
    assert store.head("k").size_bytes == 6 << 20


def test_a_part_whose_answer_is_lost_is_sent_again(s3_server: S3Server, s3_bucket: str) -> None:
    store = S3Store(s3_bucket, part_bytes=5 << 20)
    first_part = calls("PUT", where=lambda r: "partNumber=1" in r.query)
    s3_server.faults.add(LoseAnswer(), at=first_part.first())
    with store.start_upload("k") as upload:
        upload.write(bytes(6 << 20))
        upload.complete()
    assert store.read("k") == bytes(6 << 20)


def test_a_body_that_ends_early_breaks_the_stream_after_what_came_through(
    s3_server: S3Server, s3_bucket: str
) -> None:
    store = S3Store(s3_bucket)
    store.create("k", bytes(10_000))
    s3_server.faults.add(Drop(after_bytes=7_000))
    stream = store.open_stream("k")
    assert stream.size_bytes == 10_000
    assert stream.read(7_000) == bytes(7_000)
    with refuses(StoreUnreachableError, s3_bucket):
        stream.read(1_000)
    stream.close()


def test_a_stream_never_ends_early_in_silence_and_lets_go_when_closed() -> None:
    body = io.BytesIO(b"123")
    stream = S3Stream(body, 10, "etag", "s3://bucket/k")
    assert stream.read(10) == b"123"
    with refuses(StoreUnreachableError):
        stream.read(10)
    stream.close()
    assert body.closed


@pytest.mark.parametrize("cause", [SSLError("EOF within TLS"), ConnectionResetError()])
def test_whatever_breaks_a_body_is_the_same_to_the_reader(cause: Exception) -> None:
    class BrokenBody(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise cause

    with refuses(StoreUnreachableError):
        S3Stream(BrokenBody(), 10, "etag", "s3://bucket/k").read(1)


def test_a_small_read_survives_a_body_that_ends_early(s3_server: S3Server, s3_bucket: str) -> None:
    store = S3Store(s3_bucket)
    store.create("k", b"0123456789")
    s3_server.faults.add(Drop(after_bytes=3), at=calls().first())
    s3_server.faults.add(Drop(after_bytes=0), at=calls().nth(2))
    assert store.read("k") == b"0123456789"
    assert len(s3_server.requests("GET")) == 3


def test_a_stream_is_one_get_however_it_is_read(s3_server: S3Server, s3_bucket: str) -> None:
    store = S3Store(s3_bucket)
    store.create("k", bytes(100_000))
    s3_server.reset()
    stream = store.open_stream("k")
    while stream.read(999):
        pass
    stream.close()
    assert [(r.method, r.key, r.range) for r in s3_server.requests()] == [("GET", "k", None)]


def test_reads_are_retried_by_the_sdk(s3_server: S3Server, s3_bucket: str) -> None:
    store = S3Store(s3_bucket)
    store.create("k", b"v")
    s3_server.faults.add(SLOW_DOWN, at=calls("GET").first())
    assert store.read("k") == b"v"


def test_an_endpoint_that_is_not_there_is_unreachable_and_nothing_was_written() -> None:
    store = S3Store("bucket", endpoint_url="http://127.0.0.1:9")
    with refuses(StoreUnreachableError):
        store.create("k", b"v")


def test_a_missing_bucket_and_a_refusal_are_told_apart(s3_server: S3Server, s3_bucket: str) -> None:
    missing = S3Store("no-bucket-here")
    for call in (
        lambda: missing.read("k"),
        lambda: missing.create("k", b"v"),
        lambda: list(missing.list("")),
        lambda: missing.start_upload("k").complete(),
    ):
        with refuses(StoreError):
            call()
    body = b"<Error><Code>AccessDenied</Code></Error>"
    s3_server.faults.add(Refuse(answering("403 Forbidden", body)))
    with refuses(PermissionDeniedError):
        S3Store(s3_bucket).read("k")


def test_a_failed_part_fails_the_upload_and_leaves_nothing(
    s3_server: S3Server, s3_bucket: str
) -> None:
    store = S3Store(s3_bucket, part_bytes=5 << 20)
    denied = answering("403 Forbidden", b"<Error><Code>AccessDenied</Code></Error>")
    s3_server.faults.add(Refuse(denied), at=calls(where=lambda r: "partNumber=2" in r.query))
    with pytest.raises(PermissionDeniedError), store.start_upload("k") as upload:
        for _ in range(20):
            upload.write(bytes(1 << 20))
        upload.complete()
    s3_server.faults.clear()
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


class IgnoreRange:
    """A fault of some proxies: the whole object is answered."""

    def around(self, call: Call, effect: Effect) -> object:
        assert isinstance(call, Request)
        call.environ.pop("HTTP_RANGE", None)
        return effect()


def test_a_server_that_ignores_ranges_is_an_error_not_other_bytes(
    s3_server: S3Server, s3_bucket: str
) -> None:
    store = S3Store(s3_bucket)
    store.create("k", b"0123456789")
    s3_server.faults.add(IgnoreRange())
    with refuses(StoreError):
        store.read_range("k", 5, 2)
    with refuses(StoreError):
        store.open_stream("k", start=5)


@pytest.mark.parametrize(
    ("name", "value"), [("AWS_PROFILE", "nope"), ("AWS_ENDPOINT_URL", "garbage")]
)
def test_a_wrong_setup_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with refuses(StoreError, name):
        S3Store("bucket").read("k")


def test_missing_credentials_are_said_so(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with refuses(PermissionDeniedError):
        S3Store("bucket").read("k")


def test_buckets_are_in_the_path_wherever_an_endpoint_is_given(
    s3_server: S3Server, s3_bucket: str
) -> None:
    endpoint = s3_server.endpoint_url.replace("127.0.0.1", "localhost")
    S3Store(s3_bucket, endpoint_url=endpoint).create("k", b"v")
    assert [(r.bucket, r.key) for r in s3_server.requests()] == [(s3_bucket, "k")]


def test_folder_marks_of_the_console_are_no_objects(s3_server: S3Server, s3_bucket: str) -> None:
    store = S3Store(s3_bucket, "t")
    store.create("data/k", b"v")
    boto3 = store._clients.retrying()
    for mark in ("t/", "t/data/"):
        boto3.put_object(Bucket=s3_bucket, Key=mark, Body=b"")
    assert [info.key for info in store.list("")] == ["data/k"]


def test_a_stream_past_the_end_is_empty_and_knows_its_object(s3_bucket: str) -> None:
    store = S3Store(s3_bucket)
    etag = store.create("k", b"v").etag
    stream = store.open_stream("k", start=5)
    assert (stream.size_bytes, stream.etag, stream.read(1)) == (0, etag, b"")
    stream.close()


def test_a_forked_child_makes_clients_of_its_own(s3_bucket: str) -> None:
    store = S3Store(s3_bucket)
    store.create("k", b"v")
    # As if another thread were making a client at this moment.
    with store._clients._process.lock:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            os._exit(0 if store.read("k") == b"v" else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
