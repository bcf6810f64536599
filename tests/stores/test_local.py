"""What only a folder can do wrong."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from compactor.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectNotFoundError,
    PermissionDeniedError,
    StoreError,
    StoreUnreachableError,
    UnknownOutcomeError,
    UsageError,
)
from compactor.stores.base import UnfinishedUpload
from compactor.stores.local import LocalStore
from tests.support.wording import refuses


def test_what_a_crash_leaves_is_invisible(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    upload = store.start_upload("data/k")
    upload.write(b"half")
    del upload
    assert list((tmp_path / ".tmp").iterdir())
    assert list(store.list("")) == []


def test_finished_work_leaves_no_temporary_files(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("a", b"1")
    with pytest.raises(StoreError):
        store.create("a", b"2")
    with store.start_upload("b") as upload:
        upload.complete()
    store.start_upload("c").abort()
    assert list((tmp_path / ".tmp").iterdir()) == []


def test_unfinished_files_are_told_from_strangers_in_their_folder(tmp_path: Path) -> None:
    store, hidden = LocalStore(tmp_path), tmp_path / ".tmp"
    upload = store.start_upload("data/k")
    (own,) = hidden.iterdir()
    (hidden / "thesis.txt").write_text("x")
    (hidden / "folder").mkdir()
    (hidden / ("a" * 32)).mkdir()
    (hidden / ("b" * 32)).symlink_to(hidden / "thesis.txt")
    assert [unfinished.token for unfinished in store.list_unfinished()] == [own.name]
    with refuses(UsageError, "thesis.txt"):
        store.discard_unfinished(UnfinishedUpload("thesis.txt", 0.0))
    upload.abort()


def test_a_link_in_place_of_the_folder_of_unfinished_files_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    own_like = victim / ("a" * 32)
    own_like.write_text("x")
    store = LocalStore(tmp_path / "t")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / ".tmp").symlink_to(victim)
    assert list(store.list_unfinished()) == []
    store.discard_unfinished(UnfinishedUpload(own_like.name, 0.0))
    with refuses(StoreError):
        store.create("k", b"v")
    with refuses(StoreError):
        store.start_upload("k")
    assert list(victim.iterdir()) == [own_like]
    (tmp_path / "t" / ".tmp").unlink()
    store.create("k", b"v")


def test_a_file_cut_short_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("k", bytes(1000))
    stream = store.open_stream("k")
    stream.read(10)
    os.truncate(tmp_path / "k", 20)
    stream.read(10)
    with refuses(StoreUnreachableError):
        stream.read(10)


def _open_files() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


@pytest.mark.parametrize("size", [0, 10, 1000])
def test_a_file_that_is_read_to_its_end_does_not_stay_open(tmp_path: Path, size: int) -> None:
    store = LocalStore(tmp_path)
    store.create("k", bytes(size))
    open_before = _open_files()
    stream = store.open_stream("k")
    assert _open_files() == open_before + 1
    while stream.read(10):
        pass
    assert _open_files() == open_before
    assert stream.read(10) == b""
    stream.close()


def test_a_root_that_is_a_file_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    store = LocalStore(tmp_path / "f")
    with refuses(StoreError):
        store.create("k", b"v")
    with pytest.raises(StoreError):
        list(store.list(""))


def test_a_root_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "none")
    assert list(store.list("")) == []
    with pytest.raises(ObjectNotFoundError):
        store.head("k")


def test_a_folder_is_no_object(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("a/b", b"x")
    with pytest.raises(ObjectNotFoundError):
        store.head("a")


def test_a_key_cannot_also_be_a_folder(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("a", b"file")
    store.create("b/c", b"file")
    for key in ("a/x", "b"):
        with refuses(StoreError) as caught:
            store.create(key, b"x")
        assert not isinstance(caught.value, ObjectExistsError)
        with refuses(StoreError):  # noqa: SIM117
            with store.start_upload(key) as upload:
                upload.complete()
    store.delete("b")
    assert [info.key for info in store.list("")] == ["a", "b/c"]
    assert list((tmp_path / ".tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.ENOSPC, StoreError),
        (errno.EDQUOT, StoreError),
        (errno.EFBIG, StoreError),
        (errno.EMFILE, StoreError),
        (errno.ENFILE, StoreError),
        (errno.EACCES, PermissionDeniedError),
        (errno.EROFS, PermissionDeniedError),
        (errno.EIO, StoreError),
    ],
)
def test_what_the_system_refuses_is_explained_and_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    error: type[StoreError],
) -> None:
    store = LocalStore(tmp_path)

    def refuse(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with refuses(error, str(tmp_path / "data" / "k")):
        store.create("data/k", b"v")
    monkeypatch.undo()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("how", ["create", "upload"])
def test_a_name_that_may_not_last_is_an_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    store = LocalStore(tmp_path)
    store.create("first", b"makes the folders")
    fsync, synced = os.fsync, []

    def fail_on_the_folder(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_on_the_folder)
    with refuses(UnknownOutcomeError):
        if how == "create":
            store.create("k", b"v")
        else:
            with store.start_upload("k") as upload:
                upload.write(b"v")
                upload.complete()
    assert store.read("k") == b"v"


def test_a_file_is_synced_before_it_gets_its_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    store.create("data/first", b"makes the folders")
    fsync, link, steps = os.fsync, os.link, []

    def seen_fsync(descriptor: int) -> None:
        steps.append(Path(f"/proc/self/fd/{descriptor}").readlink().parent.name)
        fsync(descriptor)

    def seen_link(source: Path, target: Path) -> None:
        steps.append("link")
        link(source, target)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(os, "link", seen_link)
    store.create("data/k", b"v")
    assert steps == [".tmp", "link", tmp_path.name]


def test_a_file_system_without_hard_links_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(_source: Path, _target: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)
    with refuses(StoreError):
        LocalStore(tmp_path).create("k", b"v")
    assert list((tmp_path / ".tmp").iterdir()) == []


def test_a_link_that_meets_itself_is_our_own_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def link_twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", link_twice)
    store = LocalStore(tmp_path)
    store.create("k", b"v")
    monkeypatch.undo()
    assert store.read("k") == b"v"
    with pytest.raises(ObjectExistsError):
        store.create("k", b"v")


def test_names_that_are_no_text_are_left_out_of_listings(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("k", b"v")
    (tmp_path / os.fsdecode(b"\xff")).write_bytes(b"")
    assert [info.key for info in store.list("")] == ["k"]


def test_what_vanishes_while_it_is_listed_is_left_out(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for key in ("a", "b", "c/d", "e"):
        store.create(key, b"v")
    listing = store.list("")
    assert next(listing).key == "a"
    (tmp_path / "b").unlink()
    (tmp_path / "c" / "d").unlink()
    (tmp_path / "c").rmdir()
    assert [info.key for info in listing] == ["e"]


def test_the_tail_of_a_long_log_is_listed_without_a_look_at_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "_log"
    log.mkdir()
    keys = [f"_log/{number:020d}.json" for number in range(3_000)]
    for key in keys:
        (tmp_path / key).touch()
    looked_at = []
    stat = Path.stat

    def seen_stat(path: Path, **options: bool) -> os.stat_result:
        looked_at.append(path)
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", seen_stat)
    store = LocalStore(tmp_path)
    assert [info.key for info in store.list("_log/", start_after=keys[-3])] == keys[-2:]
    assert [path for path in looked_at if path.suffix] == [tmp_path / key for key in keys[-2:]]


def test_an_object_rewritten_in_place_has_another_etag(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    before = store.create("k", b"one").etag
    (tmp_path / "k").write_bytes(b"two")
    os.utime(tmp_path / "k", ns=(1, 1))
    with pytest.raises(ObjectChangedError):
        store.open_stream("k", if_match=before)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["a pipe", "a device", "a socket"])
def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "k"
    listener = socket.socket(socket.AF_UNIX)
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    else:
        listener.bind(str(path))
    store = LocalStore(tmp_path)
    for read in (
        lambda: store.read("k"),
        lambda: store.read_range("k", 0, 10),
        lambda: store.open_stream("k"),
    ):
        with refuses(StoreError):
            read()
    listener.close()
