"""A table lives on Google's and on Azure's store, and on another S3 server, as it does on S3."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from compactor.cli.main import run
from compactor.stores.open import open_store
from compactor.stores.user_files import stored_files
from tests.support.tables import log_rows

OTHERS = [pytest.param(name, marks=pytest.mark.program) for name in ("azure", "ministack")]


@pytest.fixture(params=["gcs", *OTHERS])
def place(request: pytest.FixtureRequest) -> str:
    """The address of an empty folder in a bucket or container."""
    if request.param == "gcs":
        return f"gs://{request.getfixturevalue('gcs_bucket')}/a prefix"
    if request.param == "ministack":
        return f"s3://{request.getfixturevalue('ministack_bucket')}/a prefix"
    return f"az://{request.getfixturevalue('azure_container')}/a prefix"


def test_rows_are_ingested_compacted_deleted_and_verified(
    place: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    table = f"{place}/t"
    for number in range(3):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(log_rows(400, number), path)
        assert run(["ingest", table, str(path), "--sort-by", "service,ts"]) == 0
    assert run(["delete", table, "--where", "service = 'no such'"]) == 0
    assert run(["compact", table, "--strategy", "full", "--master", "in-process"]) == 0
    capfd.readouterr()
    assert run(["query", table, "--count"]) == 0
    assert capfd.readouterr().out.strip() == "1200"
    assert run(["verify", table]) == 0
    assert run(["vacuum", table, "--retain", "0s", "--grace", "0s"]) == 0
    capfd.readouterr()
    assert run(["inspect", table, "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["rows"] == 1200
    assert len(list(open_store(table).list("data/"))) == 1


def test_users_files_may_be_objects(place: str) -> None:
    files = stored_files(place.partition(":")[0])
    assert files is not None
    for name in ("a.csv", "b.csv", "b.txt"):
        unfinished = files.create(f"{place}/in/{name}")
        unfinished.file.write(name.encode())
        unfinished.seal()
        unfinished.publish()
    assert files.matching(f"{place}/in/*.csv") == [f"{place}/in/a.csv", f"{place}/in/b.csv"]
    assert files.place(f"{place}/in/b.csv").open().read() == b"b.csv"
