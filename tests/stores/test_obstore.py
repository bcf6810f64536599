"""What only Google's and Azure's stores can do wrong: lost answers, refusals, and obstore's own ways."""

from __future__ import annotations

import os
import signal
from typing import Any

import obstore
import pytest

from compactor.errors import (
    ObjectChangedError,
    PermissionDeniedError,
    StoreError,
    StoreUnreachableError,
    UnknownOutcomeError,
)
from compactor.resources.budget import MemoryBudget
from compactor.resources.stage import Buffer, MemoryStage, StagePlan
from compactor.resources.upload_memory import BudgetedUploads
from compactor.stores.conditional_writes import prove_conditional_writes
from compactor.stores.obstore_services import Container
from compactor.stores.obstore_store import ObstoreStore, ObstoreStream
from compactor.stores.open import open_store
from compactor.stores.resume import ResumingStream
from tests.faults import Drop, IgnoreConditions, LoseAnswer, Refuse, calls
from tests.support.gcs_server import GcsServer
from tests.support.obstore_memory import obstore_in_memory
from tests.support.s3_server import answering
from tests.support.wording import refuses

MIB = 1 << 20
BUSY = Refuse(answering("503 Service Unavailable", b"<Error><Code>SlowDown</Code></Error>"))


@pytest.fixture
def store(gcs_bucket: str) -> ObstoreStore:
    return ObstoreStore(Container.at(f"gs://{gcs_bucket}/t"), part_bytes=5 * MIB)


def test_a_create_is_sent_once_and_a_server_fault_is_an_unknown_outcome(
    gcs_server: GcsServer, store: ObstoreStore
) -> None:
    gcs_server.faults.add(BUSY, at=calls("PUT"))
    with refuses(UnknownOutcomeError):
        store.create("k", b"v")
    assert len(gcs_server.requests("PUT")) == 1


@pytest.mark.parametrize("landed", [True, False])
def test_a_create_whose_answer_is_lost_is_an_unknown_outcome_and_sent_once(
    gcs_server: GcsServer, store: ObstoreStore, landed: bool
) -> None:
    gcs_server.faults.add(LoseAnswer(landed=landed))
    with refuses(UnknownOutcomeError):
        store.create("k", b"v")
    assert len(gcs_server.requests("PUT")) == 1
    gcs_server.faults.clear()
    assert len(list(store.list(""))) == (1 if landed else 0)


def test_a_store_without_conditional_writes_is_found_by_the_first_writer(
    gcs_server: GcsServer, store: ObstoreStore
) -> None:
    gcs_server.faults.add(IgnoreConditions(), at=calls("PUT"))
    with refuses(StoreError):
        prove_conditional_writes(store, "_log/probe")


def test_reads_are_retried_by_the_library(gcs_server: GcsServer, store: ObstoreStore) -> None:
    store.create("k", b"v")
    gcs_server.faults.add(BUSY, at=calls("GET").first())
    assert store.read("k") == b"v"


def test_a_broken_body_is_continued_on_the_same_object(
    gcs_server: GcsServer, store: ObstoreStore
) -> None:
    data = bytes(range(250)) * 4_000
    store.create("k", data)
    gcs_server.faults.add(Drop(after_bytes=300_000), at=calls("GET").first())
    gcs_server.faults.add(Drop(after_bytes=200_000), at=calls("GET").nth(2))
    stream = ResumingStream(store, "k", sleep=lambda _: None)
    pieces = []
    while piece := stream.read(10_000):
        pieces.append(piece)
    assert b"".join(pieces) == data
    assert [request.range for request in gcs_server.requests("GET")] == [
        None,
        "bytes=300000-999999",
        "bytes=500000-999999",
    ]


def test_the_library_does_not_go_on_in_another_object(
    gcs_server: GcsServer, store: ObstoreStore
) -> None:
    """It compares the ETag of the answer by which it continues a body, and asks for no pinned range."""
    data = bytes(range(250)) * 4_000
    store.create("k", data)
    gcs_server.faults.add(Drop(after_bytes=300_000), at=calls("GET").first())
    stream = ResumingStream(store, "k", sleep=lambda _: None)
    pieces = [stream.read(10_000)]
    with store.start_upload("k") as upload:
        upload.write(data[::-1])
        upload.complete()
    with pytest.raises(ObjectChangedError):
        while piece := stream.read(10_000):
            pieces.append(piece)
    assert data.startswith(b"".join(pieces))
    assert sum(map(len, pieces)) == 300_000


def test_a_stream_never_ends_early_in_silence() -> None:
    stream = ObstoreStream(iter([b"123"]), 10, "etag", "gs://bucket/k")
    assert stream.read(10) == b"123"
    with refuses(StoreUnreachableError):
        stream.read(10)
    stream.close()
    assert stream.read(10) == b""


def test_a_store_that_ignores_the_pin_cannot_mix_two_objects(
    gcs_server: GcsServer, store: ObstoreStore
) -> None:
    before = store.create("k", b"one").etag
    with store.start_upload("k") as upload:
        upload.write(b"two")
        upload.complete()
    gcs_server.faults.add(IgnoreConditions(), at=calls("GET"))
    with pytest.raises(ObjectChangedError):
        store.read_range("k", 0, 2, if_match=before)


def test_a_missing_bucket_and_a_refusal_are_told_apart(
    gcs_server: GcsServer, store: ObstoreStore
) -> None:
    missing = open_store("gs://no-bucket-here")
    for call in (
        lambda: missing.read("k"),
        lambda: missing.create("k", b"v"),
        lambda: list(missing.list("")),
        lambda: missing.start_upload("k").complete(),
    ):
        with refuses(StoreError):
            call()
    for status in ("401 Unauthorized", "403 Forbidden"):
        gcs_server.faults.clear()
        gcs_server.faults.add(Refuse(answering(status, b"<Error/>")))
        with refuses(PermissionDeniedError):
            store.read("k")
    gcs_server.faults.clear()
    gcs_server.faults.add(Refuse(answering("400 Bad Request", b"<Error/>")))
    with refuses(StoreError):
        store.create("k", b"v")


def test_an_endpoint_that_is_not_there_is_unreachable_and_nothing_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GOOGLE_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "test")
    with refuses(StoreUnreachableError):
        open_store("gs://bucket/t").create("k", b"v")


@pytest.mark.parametrize("url", ["gs://bucket/t", "az://container/t"])
def test_missing_credentials_are_said_so(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("GOOGLE_", "AZURE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/no/such/file.json")
    with refuses(PermissionDeniedError):
        open_store(url).read("k")


def test_a_small_upload_is_one_put_and_a_large_one_is_parts(
    gcs_server: GcsServer, store: ObstoreStore
) -> None:
    for size, puts, posts in ((5 * MIB, 1, 0), (5 * MIB + 1, 2, 2)):
        gcs_server.reset()
        with store.start_upload("k") as upload:
            upload.write(bytes(size))
            assert upload.complete().size_bytes == size
        assert len(gcs_server.requests("PUT")) == puts
        assert len(gcs_server.requests("POST")) == posts


def test_a_failed_part_fails_the_upload_and_leaves_nothing(
    gcs_server: GcsServer, store: ObstoreStore
) -> None:
    denied = answering("403 Forbidden", b"<Error><Code>AccessDenied</Code></Error>")
    gcs_server.faults.add(Refuse(denied), at=calls(where=lambda r: "partNumber=2" in r.query))
    with pytest.raises(PermissionDeniedError), store.start_upload("k") as upload:
        for _ in range(30):
            upload.write(bytes(MIB))
        upload.complete()
    gcs_server.faults.clear()
    assert list(store.list("")) == []
    assert [r for r in gcs_server.requests("DELETE") if "uploadId" in r.query]


def test_completing_without_an_answer_is_an_unknown_outcome(
    gcs_server: GcsServer, store: ObstoreStore
) -> None:
    gcs_server.faults.add(LoseAnswer(), at=calls("POST", where=lambda r: "uploadId" in r.query))
    with refuses(UnknownOutcomeError), store.start_upload("k") as upload:
        upload.write(bytes(6 * MIB))
        upload.complete()


def test_parts_give_their_memory_back_when_they_are_sent(store: ObstoreStore) -> None:
    stages = tuple(
        MemoryStage(
            name=name, holds="", buffer=Buffer.STREAMING, memory_bytes=0, spill_priority=None
        )
        for name in ("parts", "upload")
    )
    budget = MemoryBudget(StagePlan(64 * MIB, 0, stages))
    with store.start_upload("k", BudgetedUploads(budget, 10 * MIB)) as upload:
        for _ in range(60):
            upload.write(bytes(MIB))
        upload.complete()
    assert budget.used_bytes == 0
    assert 5 * MIB <= budget.peaks["upload"] <= 10 * MIB
    assert store.head("k").size_bytes == 60 * MIB


def test_an_object_of_too_many_parts_is_refused(
    store: ObstoreStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compactor.stores.upload_parts.MAX_PARTS", 2)
    with refuses(StoreError), store.start_upload("k") as upload:
        upload.write(bytes(15 * MIB + 1))
    assert list(store.list("")) == []


def test_the_stores_time_is_known_after_the_first_create(store: ObstoreStore) -> None:
    assert store.time() is None
    created = store.create("k", b"v").modified_unix_seconds
    time = store.time()
    assert time is not None
    assert time.is_independent
    assert 0 <= time.unix_ms / 1000 - created < 60


def test_a_listing_in_another_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An account with a hierarchical namespace lists a folder before a name that begins like it."""
    store = obstore_in_memory()
    for key in ("a/b", "a.c"):
        store.create(key, b"")
    pages: list[Any] = [list(page) for page in obstore.list(store._client())]
    monkeypatch.setattr(obstore, "list", lambda *_, **__: [page[::-1] for page in pages])
    with refuses(StoreError):
        list(store.list(""))


def test_a_forked_child_is_told_that_it_cannot_go_on() -> None:
    store = obstore_in_memory()
    store.create("k", b"v")
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            store.read("k")
        except StoreError as error:
            os._exit(0 if "start processes by spawn" in str(error) else 2)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
