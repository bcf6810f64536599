"""One contract, run on every store: the local folder, S3, Google's and Azure's, and those in memory."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from compactor.errors import (
    DataError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreError,
    UsageError,
)
from compactor.stores import base
from compactor.stores.base import Folder, Store, UnfinishedUpload
from compactor.stores.local import LocalStore
from compactor.stores.metered import MeteredStore, StoreMetrics
from compactor.stores.obstore_store import ObstoreStore
from compactor.stores.open import open_store
from compactor.stores.s3 import S3Store
from tests.support.memory_store import MemoryStore
from tests.support.obstore_memory import obstore_in_memory
from tests.support.wording import refuses

DATA = bytes(range(256)) * 40


STORES = [
    "local",
    "s3",
    "metered",
    "memory",
    "obstore",
    "gcs",
    pytest.param("azurite", marks=pytest.mark.program),
    pytest.param("ministack", marks=pytest.mark.program),
]


FOLDERS = [store for store in STORES if store not in ("metered", "memory", "obstore")]
"""Stores of which folders can be opened, too."""


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    empty: Store = made(request, tmp_path)
    return empty


@pytest.fixture(params=FOLDERS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    empty: Folder = made(request, tmp_path)
    return empty


def made(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Returns the empty store that a fixture's parameter names."""
    match request.param:
        case "local":
            return LocalStore(tmp_path / "root")
        case "s3":
            return S3Store(request.getfixturevalue("s3_bucket"), "a prefix/ü")
        case "obstore":
            return obstore_in_memory()
        case "gcs":
            return open_store(f"gs://{request.getfixturevalue('gcs_bucket')}/a prefix/ü")
        case "azurite":
            return open_store(f"az://{request.getfixturevalue('azure_container')}/a prefix/ü")
        case "ministack":
            return S3Store(request.getfixturevalue("ministack_bucket"), "a prefix/ü")
        case "metered":
            return MeteredStore(LocalStore(tmp_path / "root"), StoreMetrics())
    return MemoryStore()


def put(store: Store, key: str, data: bytes = b"x") -> None:
    with store.start_upload(key) as upload:
        upload.write(data)
        upload.complete()


def read_all(stream, piece: int = 1000) -> bytes:
    pieces = []
    while data := stream.read(piece):
        assert len(data) <= piece
        pieces.append(data)
    assert stream.read(piece) == b""
    stream.close()
    return b"".join(pieces)


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, len(DATA)])
def test_what_is_uploaded_is_streamed_back(store: Store, size: int) -> None:
    put(store, "data/k", DATA[:size])
    stream = store.open_stream("data/k")
    assert stream.size_bytes == size
    assert read_all(stream) == DATA[:size]
    assert store.read("data/k") == DATA[:size]
    assert store.head("data/k").size_bytes == size


def test_an_object_too_large_to_be_read_whole_is_refused_before_it_is_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, "k", DATA)
    monkeypatch.setattr(base, "MAX_READ_BYTES", len(DATA))
    assert store.read("k") == DATA
    monkeypatch.setattr(base, "MAX_READ_BYTES", len(DATA) - 1)
    with refuses(DataError):
        store.read("k")
    assert store.read_range("k", 0, len(DATA)) == DATA


@pytest.mark.parametrize("start", [0, 1, 5000, len(DATA) - 1, len(DATA), len(DATA) + 10])
def test_a_stream_may_start_anywhere(store: Store, start: int) -> None:
    put(store, "k", DATA)
    stream = store.open_stream("k", start=start)
    assert stream.size_bytes == max(0, len(DATA) - start)
    assert read_all(stream) == DATA[start:]


@pytest.mark.parametrize(
    ("start", "length"),
    [(0, 0), (0, 1), (0, 10**9), (100, 50), (10239, 1), (10239, 9), (10240, 1), (10**6, 5)],
)
def test_ranges_give_exactly_their_bytes_and_fewer_only_at_the_end(
    store: Store, start: int, length: int
) -> None:
    put(store, "k", DATA)
    assert store.read_range("k", start, length) == DATA[start : start + length]


def test_uploads_of_many_writes_and_parts_round_trip(store: Store) -> None:
    pieces = [bytes([n]) * (700_001 + n) for n in range(30)]
    with store.start_upload("big") as upload:
        for piece in pieces:
            upload.write(memoryview(piece))
        info = upload.complete()
    assert info.size_bytes == sum(map(len, pieces))
    assert store.read("big") == b"".join(pieces)


def test_an_upload_takes_buffers_of_any_item_size(store: Store) -> None:
    with store.start_upload("k") as upload:
        upload.write(bytearray(b"head"))
        upload.write(memoryview(DATA).cast("q"))
        assert upload.complete().size_bytes == 4 + len(DATA)
    assert store.read("k") == b"head" + DATA


@pytest.mark.parametrize("how", ["create", "upload"])
def test_a_write_tells_what_a_look_at_the_object_tells(store: Store, how: str) -> None:
    if how == "create":
        info = store.create("k", DATA)
    else:
        with store.start_upload("k") as upload:
            upload.write(DATA)
            info = upload.complete()
    seen, (listed,) = store.head("k"), store.list("")
    # A listing may tell milliseconds, where a HEAD has seconds.
    assert (seen.key, seen.size_bytes, seen.etag) == (listed.key, listed.size_bytes, listed.etag)
    assert listed.modified_unix_seconds == pytest.approx(seen.modified_unix_seconds, abs=1)
    assert (info.key, info.size_bytes, info.etag) == ("k", len(DATA), seen.etag)
    assert info.modified_unix_seconds == pytest.approx(seen.modified_unix_seconds, abs=5)


@pytest.mark.parametrize("size", [10, 20 << 20])
def test_an_upload_is_invisible_until_complete_and_gone_after_abort(
    store: Store, size: int
) -> None:
    upload = store.start_upload("k")
    upload.write(bytes(size))
    assert list(store.list("")) == []
    with pytest.raises(ObjectNotFoundError):
        store.head("k")
    upload.abort()
    upload.abort()
    assert list(store.list("")) == []


def test_leaving_an_upload_by_an_exception_aborts_it(store: Store) -> None:
    with pytest.raises(RuntimeError), store.start_upload("k") as upload:
        upload.write(b"x")
        raise RuntimeError
    assert list(store.list("")) == []


def test_abort_after_complete_is_harmless(store: Store) -> None:
    upload = store.start_upload("k")
    upload.write(b"x")
    upload.complete()
    upload.abort()
    assert store.read("k") == b"x"


def test_create_makes_what_is_absent_and_refuses_what_exists(store: Store) -> None:
    assert store.create("_log/1.json", b"one").size_bytes == 3
    with pytest.raises(ObjectExistsError):
        store.create("_log/1.json", b"two")
    assert store.read("_log/1.json") == b"one"


def test_of_many_creators_exactly_one_wins(store: Store) -> None:
    winners: list[int] = []
    barrier = threading.Barrier(16)

    def create(number: int) -> None:
        barrier.wait()
        try:
            store.create("_log/1.json", str(number).encode())
        except ObjectExistsError:
            return
        winners.append(number)

    threads = [threading.Thread(target=create, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if isinstance(store, MemoryStore):
        assert winners  # not atomic between threads; only protocols are tested on it
    else:
        assert [str(n).encode() for n in winners] == [store.read("_log/1.json")]


def test_listing_is_in_byte_order_by_prefix_and_after_a_key(store: Store) -> None:
    keys = ["a.b", "a/b", "a/b.c", "a0", "b/c/d", "b/c0", "b/é", "b/z", "c", "ü", "日"]
    for key in reversed(keys):
        put(store, key)

    def listed(prefix: str, start_after: str | None = None) -> list[str]:
        return [info.key for info in store.list(prefix, start_after=start_after)]

    expected = sorted(keys, key=str.encode)
    assert listed("") == expected
    for prefix in ("a", "a/", "a/b", "b/c", "b/", "zzz", "b/c/d/e"):
        assert listed(prefix) == [key for key in expected if key.startswith(prefix)]
    for after in (*keys, "a/", "a1", "b/c/", "b/d", "0", "zz"):
        rest = [key for key in expected if key.encode() > after.encode()]
        assert listed("", after) == rest
        assert listed("b/", after) == [key for key in rest if key.startswith("b/")]


@pytest.mark.long
def test_a_long_listing_is_complete(store: Store) -> None:
    keys = [f"_log/{n:020d}.json" for n in range(1, 1203 if isinstance(store, S3Store) else 300)]
    for key in keys:
        store.create(key, b"{}")
    assert [info.key for info in store.list("_log/")] == keys
    assert [info.key for info in store.list("_log/", start_after=keys[-3])] == keys[-2:]


def test_deleting_twice_is_no_error(store: Store) -> None:
    put(store, "a/k")
    store.delete("a/k")
    store.delete("a/k")
    store.delete("never/was")
    assert list(store.list("")) == []


def test_absent_objects_are_said_to_be_absent(store: Store) -> None:
    put(store, "there")
    for call in (
        store.read,
        store.head,
        store.open_stream,
        lambda key: store.read_range(key, 0, 1),
    ):
        with pytest.raises(ObjectNotFoundError):
            call("not/there")


def test_a_replaced_object_has_another_etag_and_pinned_reads_notice(store: Store) -> None:
    put(store, "k", b"one")
    before = store.head("k").etag
    assert read_all(store.open_stream("k", if_match=before)) == b"one"
    put(store, "k", b"other")
    assert store.head("k").etag != before
    for start in (0, 1):
        with pytest.raises(ObjectChangedError):
            store.open_stream("k", start=start, if_match=before)
    if not isinstance(store, MemoryStore):  # its ranges are never pinned
        with pytest.raises(ObjectChangedError):
            store.read_range("k", 1, 2, if_match=before)


def test_many_streams_of_one_store_may_be_open_at_once(store: Store) -> None:
    for n in range(40):
        put(store, f"k{n}", DATA[n:])
    streams = [store.open_stream(f"k{n}") for n in range(40)]
    heads = [stream.read(10) for stream in streams]
    assert heads == [DATA[n : n + 10] for n in range(40)]
    assert [heads[n] + read_all(stream) for n, stream in enumerate(streams)] == [
        DATA[n:] for n in range(40)
    ]


@pytest.mark.parametrize(
    "key",
    ["", "/abs", "a//b", "../up", "a/../b", "a/", ".", "a/./b", "nul\0", ".tmp/x", "bytes\udcff"],
)
def test_keys_that_lead_astray_are_refused(store: Store, key: str) -> None:
    if isinstance(store, MemoryStore):
        pytest.skip("a dictionary has no paths")
    for call in (store.read, store.delete, store.start_upload):
        with pytest.raises(UsageError):
            call(key)
    with pytest.raises(UsageError):
        store.create(key, b"")


def test_a_prefix_cannot_lead_out_of_the_root(store: Store) -> None:
    if isinstance(store, MemoryStore):
        pytest.skip("a dictionary has no paths")
    for prefix in ("../", "/", "a/../../b"):
        with pytest.raises(UsageError):
            list(store.list(prefix))


def test_stores_survive_pickling(store: Store) -> None:
    if isinstance(store, MemoryStore | MeteredStore):
        pytest.skip("not sent to tasks")
    if isinstance(store, ObstoreStore) and store.url.startswith("memory:"):
        pytest.skip("what another process has in memory is out of reach")
    put(store, "k", b"v")
    twin = pickle.loads(pickle.dumps(store))
    assert twin.url == store.url
    assert twin.read("k") == b"v"


def test_an_address_leads_to_its_store(store: Store) -> None:
    if isinstance(store, MemoryStore | MeteredStore):
        pytest.skip("has no address")
    if store.url.startswith("memory:"):
        pytest.skip("has no address")
    put(store, "k", b"v")
    assert open_store(store.url).read("k") == b"v"


def begin_upload(store: Store, key: str):
    """An upload that has got so far that its store knows of it: on S3, past its first part."""
    upload = store.start_upload(key)
    upload.write(bytes(9 << 20))
    return upload


def test_an_upload_is_listed_as_unfinished_until_it_is_complete_or_aborted(store: Store) -> None:
    if isinstance(store, ObstoreStore):
        pytest.skip("obstore does not list them")
    assert list(store.list_unfinished()) == []
    first, second = begin_upload(store, "data/a"), begin_upload(store, "data/b")
    assert len(list(store.list_unfinished())) == 2
    first.complete()
    second.abort()
    assert list(store.list_unfinished()) == []
    assert [info.key for info in store.list("data/")] == ["data/a"]


def test_a_discarded_upload_vanishes_and_never_becomes_visible(store: Store) -> None:
    if isinstance(store, ObstoreStore):
        pytest.skip("obstore does not list them")
    upload = begin_upload(store, "data/a")
    (unfinished,) = store.list_unfinished()
    store.discard_unfinished(unfinished)
    store.discard_unfinished(unfinished)
    assert list(store.list_unfinished()) == []
    with pytest.raises(StoreError):
        upload.complete()
    upload.abort()
    assert list(store.list("data/")) == []


def test_uploads_of_another_table_are_not_listed(s3_server, s3_bucket: str, tmp_path: Path) -> None:
    upload = begin_upload(S3Store(s3_bucket, "table"), "data/a")
    assert list(S3Store(s3_bucket, "tab").list_unfinished()) == []
    upload.abort()


def test_no_token_leads_out_of_the_folder_of_unfinished_files(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"x")
    with pytest.raises(UsageError):
        LocalStore(tmp_path).discard_unfinished(UnfinishedUpload("../precious", 0.0))
    assert (tmp_path / "precious").exists()


def test_folders_are_listed_without_what_is_in_them_and_opened_as_stores(folder: Folder) -> None:
    assert list(folder.folders("")) == []
    for key in ("a/_log/1", "a/data/1", "b/x/_log/1", "b.txt", "ö/y"):
        put(folder, key)
    assert list(folder.folders("")) == ["a", "b", "ö"]
    assert list(folder.folders("b/")) == ["x"]
    assert list(folder.folders("c/")) == []
    below = folder.within("b/x")
    assert below.url == f"{folder.url}/b/x"
    assert [info.key for info in below.list("")] == ["_log/1"]
    assert pickle.loads(pickle.dumps(below)).read("_log/1") == b"x"
    assert folder.within("").url == folder.url
