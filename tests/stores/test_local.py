"""What only a folder can do wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from compactor.errors import ObjectNotFoundError, StoreError, StoreUnreachableError
from compactor.stores.local import LocalStore


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


def test_a_file_cut_short_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.create("k", bytes(1000))
    stream = store.open_stream("k")
    stream.read(10)
    os.truncate(tmp_path / "k", 20)
    stream.read(10)
    with pytest.raises(StoreUnreachableError, match="shorter"):
        stream.read(10)


def test_a_root_that_is_a_file_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    store = LocalStore(tmp_path / "f")
    with pytest.raises(StoreError, match="file is where a folder belongs"):
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
