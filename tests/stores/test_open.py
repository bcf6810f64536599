"""Addresses lead to stores, or to advice."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from compactor.errors import UsageError
from compactor.stores.local import LocalStore
from compactor.stores.obstore_services import Container
from compactor.stores.obstore_store import ObstoreStore
from compactor.stores.open import open_store, split_object_url
from compactor.stores.s3 import S3Store
from compactor.stores.user_files import stored_files
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
    ("url", "canonical"),
    [
        ("gs://bucket", "gs://bucket"),
        ("gs://my.bucket-1/a/b ü/", "gs://my.bucket-1/a/b ü"),
        ("az://container/a/", "az://container/a"),
        (
            "abfss://container@account.dfs.core.windows.net/a/b",
            "abfss://container@account.dfs.core.windows.net/a/b",
        ),
    ],
)
def test_containers_of_google_and_azure_are_opened_with_their_prefix(
    url: str, canonical: str
) -> None:
    store = open_store(url)
    assert isinstance(store, ObstoreStore)
    assert store.url == canonical


def test_an_address_of_a_data_lake_names_its_account() -> None:
    container = Container.at("abfss://container@account.dfs.core.windows.net/a/b")
    assert (container.name, container.prefix) == ("container", "a/b")
    assert container.settings == {"account_name": "account"}


@pytest.mark.parametrize("url", ["gs://bucket/t", "az://container/t"])
def test_without_obstore_the_message_says_what_to_install(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "compactor.stores.obstore_store", raising=False)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with refuses(UsageError, "lsm-compactor["):
        open_store(url)


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Installs a distribution that registers a scheme. Arguments: its name, and the lines of its group."""

    def install(name: str, entries: str) -> None:
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[compactor.stores]\n{entries}\n")

    module = "from compactor.stores.local import LocalStore\n\n"
    module += f"def opened(url):\n    return LocalStore('{tmp_path}/' + url.partition('://')[2])\n"
    (tmp_path / "vault_store.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "vault_store", raising=False)
    return install


def test_another_distribution_adds_a_scheme(
    distribution: Callable[[str, str], None], tmp_path: Path
) -> None:
    distribution("vault", "vault = vault_store:opened")
    store = open_store("vault://bucket/t")
    store.create("k", b"v")
    assert (tmp_path / "bucket/t/k").read_bytes() == b"v"
    file = stored_files("vault")
    assert file is not None
    assert file.place("vault://bucket/t/k").open().read() == b"v"


@pytest.mark.parametrize(
    ("url", "entries"),
    [
        ("vault://bucket/t", ["vault = no_such_module:opened"]),
        ("vault://bucket/t", ["vault = vault_store:renamed"]),
        ("vault://bucket/t", ["vault = vault_store:opened", "vault = other_store:opened"]),
        ("vault://key:secret@bucket/t", ["vault = vault_store:opened"]),
    ],
)
def test_a_scheme_that_cannot_be_opened_is_refused(
    url: str, entries: list[str], distribution: Callable[[str, str], None]
) -> None:
    for number, line in enumerate(entries):
        distribution(f"vault{number}", line)
    with refuses(UsageError):
        open_store(url)


def test_no_distribution_takes_the_place_of_a_scheme(
    distribution: Callable[[str, str], None],
) -> None:
    distribution("vault", "s3 = vault_store:opened")
    assert isinstance(open_store("s3://bucket/t"), S3Store)


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
        "gs:/bucket",
        "gs://",
        "gs://bucket/a?generation=1",
        "gs://bucket/../b",
        "gs://key:secret@bucket/a",
        "az://",
        "az://container/a?sv=1&sig=secret",
        "az://secret@container/a",
        "abfss://container/a",
        "abfss://Secret@account.dfs.core.windows.net/a",
        "abfss://container@account.example.com/a",
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
