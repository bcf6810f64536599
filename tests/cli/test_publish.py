"""`publish` as a user meets it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg import catalog
from pyiceberg.utils.config import Config

from compactor import Table
from compactor.errors import UsageError
from compactor.lakes.lake import LakeKind
from compactor.lakes.open import open_publisher
from compactor.stores.open import open_store
from compactor.table.commit_log import CommitLog
from tests.cli.test_cli import Cli, cli
from tests.support.wording import refuses, says

__all__ = ["cli"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Table.create(tmp_path / "t", pa.table({"k": [2, 1, 3]}), "k")
    return tmp_path / "t"


def test_a_copy_is_made_and_kept_up_to_date(cli: Cli, path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    said = cli("publish", path, copy, "--as", "delta")
    assert said.startswith(f"{copy}: version 1, 3 rows in 1 file; 1 added (")
    assert said.endswith("), 0 removed\n")
    Table.open(path).append(pa.table({"k": [4]}))
    done = json.loads(cli("publish", path, copy, "--as", "delta", "--json"))
    assert done.pop("bytes_added") > 0
    assert done == {
        "destination": str(copy), "as": "delta", "version": 2, "files": 2, "rows": 4, "added": 1,
        "removed": 0,
    }  # fmt: skip
    assert sorted(DeltaTable(copy).to_pyarrow_table()["k"].to_pylist()) == [1, 2, 3, 4]


def test_levels_are_counted_from_the_one_that_is_named(
    cli: Cli, path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    assert "0 rows in 0 files" in cli("publish", path, copy, "--as", "parquet", "--levels", "1+")
    assert "3 rows in 1 file" in cli("publish", path, copy, "--as", "parquet", "--levels", "0+")
    [file] = copy.glob("*.parquet")
    assert pq.read_table(file)["k"].to_pylist() == [1, 2, 3]
    cli("publish", path, copy, "--as", "parquet", "--levels", "1", code=2)
    says(cli.err.splitlines()[-1])


def test_an_iceberg_catalog_is_found_by_its_name(
    cli: Cli, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"sqlite:///{tmp_path}/shop.db"
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", address)
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())
    options = ("--as", "iceberg", "--catalog", "shop", "--name", "sales.orders")
    for _ in range(2):
        cli("publish", path, tmp_path / "copy", *options)
    opened = catalog.load_catalog("shop").load_table("sales.orders")
    assert opened.scan().to_arrow()["k"].to_pylist() == [1, 2, 3]
    assert not (tmp_path / "copy" / "catalog.db").exists()
    cli("publish", path, tmp_path / "other", *options, code=2)
    says(cli.err.splitlines()[-1])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("t", "u", "--publish", "copy", "--as", "delta"), 2),
        (("t", "--publish", "copy"), 2),
        (("t", "--as", "delta"), 2),
        (("t", "--publish", "t/copy", "--as", "delta"), 2),
    ],
)
def test_a_copy_that_a_worker_cannot_keep_is_refused_before_it_begins(
    cli: Cli,
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    cli("watch", *arguments, "--master", "in-process", code=code)
    [line] = cli.err.splitlines()
    says(line)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("t", "t/copy", "--as", "delta"), 2),
        (("t", ".", "--as", "delta"), 2),
        (("nothing", "copy", "--as", "delta"), 5),
        (("t", "copy", "--as", "delta", "--catalog", "x"), 2),
        (("t", "copy", "--as", "iceberg", "--name", "plain"), 2),
        (("t", "copy", "--as", "iceberg", "--catalog", "unknown"), 2),
        (("t", "s3://bucket/copy", "--as", "iceberg"), 2),
    ],
)
def test_a_wrong_call_is_one_line_and_writes_nothing(
    cli: Cli,
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    cli("publish", *arguments, code=code)
    [line] = cli.err.splitlines()
    says(line)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", [LakeKind.DELTA, LakeKind.ICEBERG])
def test_without_the_extra_the_command_says_what_to_install(
    kind: LakeKind, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("deltalake", "pyiceberg", "pyiceberg.catalog"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"compactor.lakes.{kind}", raising=False)
    with refuses(UsageError, "lsm-compactor[publish]"):
        open_publisher(CommitLog(open_store(str(path))), str(tmp_path / "copy"), kind)
