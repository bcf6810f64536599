"""Addresses lead to stores, or to advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from compactor.errors import UsageError
from compactor.stores.local import LocalStore
from compactor.stores.open import open_store, split_object_url
from compactor.stores.s3 import S3Store
from tests.support.wording import refuses


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("/data/t", "/data/t"),
        ("file:///data/t", "/data/t"),
        ("file://localhost/data/a%20b", "/data/a b"),
        ("t", f"{Path.cwd()}/t"),
        ("./a:b", f"{Path.cwd()}/a:b"),
        ("C:/data", f"{Path.cwd()}/C:/data"),
    ],
)
def test_folders_are_opened_by_path_or_file_address(url: str, folder: str) -> None:
    store = open_store(url)
    assert isinstance(store, LocalStore)
    assert store.url == folder


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://my.bucket-1/a/b ü/", "s3://my.bucket-1/a/b ü"),
    ],
)
def test_buckets_are_opened_with_their_prefix(url: str, canonical: str) -> None:
    store = open_store(url)
    assert isinstance(store, S3Store)
    assert store.url == canonical


@pytest.mark.parametrize(
    "url",
    [
        "",
        "s3:/bucket",
        "s3:bucket/prefix",
        "s3://",
        "s3://bucket//a",
        "s3://bucket/a/../b",
        "s3://bucket/a?versionId=1",
        "S3://bucket/a",
        "s3a://bucket/a",
        "gs://bucket/a",
        "https://host/a",
        "backup:t",
        "file://host/a",
    ],
)
def test_other_addresses_are_refused_with_advice(url: str) -> None:
    with refuses(UsageError):
        open_store(url)


@pytest.mark.parametrize(
    ("url", "root", "key"),
    [
        ("f.frag", ".", "f.frag"),
        ("/f.frag", "/", "f.frag"),
        ("/a/b/f.frag", "/a/b", "f.frag"),
        ("s3://bucket/a/f.frag", "s3://bucket/a", "f.frag"),
        ("s3://bucket/f.frag", "s3://bucket", "f.frag"),
    ],
)
def test_an_object_address_is_its_store_and_key(url: str, root: str, key: str) -> None:
    assert split_object_url(url) == (root, key)
