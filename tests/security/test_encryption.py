"""Encryption at rest: what the environment says goes with every request that creates an object."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import boto3
import pyarrow.parquet as pq
import pytest

from compactor.cli.main import run
from compactor.errors import ConfigError, UsageError
from compactor.spark.session import check_tasks_have
from compactor.stores.open import open_store
from compactor.stores.s3 import S3Store
from compactor.stores.s3_encryption import S3Encryption
from compactor.table import commit_log
from tests.spark.stand_in import FakeSpark
from tests.support.s3_server import Request, S3Server
from tests.support.tables import log_rows
from tests.support.wording import refuses

ROOT = Path(__file__).parents[2]
KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
KMS = {
    "COMPACTOR_S3_SSE": "aws:kms",
    "COMPACTOR_S3_SSE_KMS_KEY_ID": KEY,
    "COMPACTOR_S3_SSE_BUCKET_KEY": "true",
}
HEADERS = {
    "x-amz-server-side-encryption": "aws:kms",
    "x-amz-server-side-encryption-aws-kms-key-id": KEY,
    "x-amz-server-side-encryption-bucket-key-enabled": "true",
}


@pytest.fixture
def kms(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KMS.items():
        monkeypatch.setenv(name, value)


def creations(server: S3Server) -> list[Request]:
    """Requests by which an object comes to be."""
    puts = [r for r in server.requests("PUT") if "uploadId" not in r.query]
    return puts + [r for r in server.requests("POST") if r.query.startswith("uploads")]


def assert_all_ask_for_it(server: S3Server) -> None:
    for request in creations(server):
        assert {name: request.headers.get(name) for name in HEADERS} == HEADERS, request


@pytest.mark.parametrize(
    ("environment", "arguments"),
    [
        ({}, {}),
        ({"COMPACTOR_S3_SSE": ""}, {}),
        ({"COMPACTOR_S3_SSE": "AES256"}, {"ServerSideEncryption": "AES256"}),
        ({"COMPACTOR_S3_SSE": "aws:kms"}, {"ServerSideEncryption": "aws:kms"}),
        ({"COMPACTOR_S3_SSE": "aws:kms:dsse", "COMPACTOR_S3_SSE_KMS_KEY_ID": "alias/tables"},
         {"ServerSideEncryption": "aws:kms:dsse", "SSEKMSKeyId": "alias/tables"}),
        (KMS, {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": KEY, "BucketKeyEnabled": True}),
        ({"COMPACTOR_S3_SSE": "aws:kms", "COMPACTOR_S3_SSE_BUCKET_KEY": "FALSE"},
         {"ServerSideEncryption": "aws:kms", "BucketKeyEnabled": False}),
    ],
)  # fmt: skip
def test_the_environment_says_what_requests_ask_for(
    environment: dict[str, str], arguments: dict[str, object]
) -> None:
    assert S3Encryption.from_environment(environment).arguments() == arguments


@pytest.mark.parametrize(
    "environment",
    [
        {"COMPACTOR_S3_SSE": "aes256"},
        {"COMPACTOR_S3_SSE": "customer"},
        {"COMPACTOR_S3_SSE_KMS_KEY_ID": KEY},
        {"COMPACTOR_S3_SSE": "AES256", "COMPACTOR_S3_SSE_KMS_KEY_ID": KEY},
        {"COMPACTOR_S3_SSE": "aws:kms", "COMPACTOR_S3_SSE_KMS_KEY_ID": "a\r\nb: c"},
        {"COMPACTOR_S3_SSE": "AES256", "COMPACTOR_S3_SSE_BUCKET_KEY": "true"},
        {"COMPACTOR_S3_SSE": "aws:kms", "COMPACTOR_S3_SSE_BUCKET_KEY": "yes"},
    ],
)  # fmt: skip
def test_wrong_settings_are_named(environment: dict[str, str]) -> None:
    with refuses(ConfigError):
        S3Encryption.from_environment(environment)


def test_a_wrong_setting_ends_a_command_before_it_asks_for_anything(
    s3_server: S3Server,
    s3_bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COMPACTOR_S3_SSE", "yes")
    assert run(["compact", f"s3://{s3_bucket}/t", "--master", "in-process"]) == 2
    assert capsys.readouterr().err == (
        "compactor: error: COMPACTOR_S3_SSE=yes: not a kind of encryption at rest; use AES256, aws:kms "
        "or aws:kms:dsse\n"
    )
    assert s3_server.requests() == []


@pytest.mark.parametrize("algorithm", ["AES256", "aws:kms"])
def test_each_way_to_write_an_object_encrypts_it(
    s3_server: S3Server, s3_bucket: str, algorithm: str
) -> None:
    key = KEY if algorithm == "aws:kms" else None
    chosen = S3Encryption(algorithm, key)
    store: S3Store = pickle.loads(
        pickle.dumps(S3Store(s3_bucket, "p", part_bytes=5 << 20, encryption=chosen))
    )
    store.create("created", b"x")
    for name, size in (("put", 10), ("parts", 11 << 20)):
        with store.start_upload(name) as upload:
            upload.write(bytes(size))
            upload.complete()
    client = boto3.client("s3", endpoint_url=s3_server.endpoint_url)
    for name in ("created", "put", "parts"):
        found = client.head_object(Bucket=s3_bucket, Key=f"p/{name}")
        assert found["ServerSideEncryption"] == algorithm
        assert found.get("SSEKMSKeyId") == key
    # An ETag is told apart by equality only: that of an object encrypted by KMS is no MD5.
    head = store.head("parts")
    assert store.read_range("parts", 5, 7, if_match=head.etag) == bytes(7)


def test_without_settings_nothing_is_asked_for(s3_server: S3Server, s3_bucket: str) -> None:
    open_store(f"s3://{s3_bucket}/p").create("k", b"v")
    (request,) = creations(s3_server)
    assert not HEADERS.keys() & request.headers.keys()


def write_inputs(folder: Path) -> list[str]:
    paths = []
    for number in range(3):
        paths.append(str(folder / f"{number}.parquet"))
        pq.write_table(log_rows(50, number), paths[-1])
    (folder / "pipeline.yaml").write_text(
        "nodes:\n"
        f"  all: {{source: {{path: '{folder}/*.parquet'}}}}\n"
        "  sorted: {sort: {input: all, by: id}}\n"
        "  out: {output: {input: sorted, table: TABLE, sort_by: id}}\n"
    )
    return paths


@pytest.mark.usefixtures("kms")
def test_every_object_that_commands_write_is_encrypted(
    s3_server: S3Server,
    s3_bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commit_log, "_CHECKPOINT_VERSIONS", 2)
    table, files = f"s3://{s3_bucket}/t", write_inputs(tmp_path)
    ingest = ["ingest", table, *files, "--sort-by", "service,ts", "--skip-index", "id:bloom"]
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(pipeline.read_text().replace("TABLE", f"{table}2"))
    (tmp_path / "d.ndjson").write_text('{"_id": "1", "k": 1}\n')
    (tmp_path / "spec.json").write_text(json.dumps({"datasets": ["d d"]}))
    for call in (
        ingest,
        ["delete", table, "--where", "id = '0-1'"],
        ["compact", table, "--strategy", "full", "--master", "in-process"],
        ["alter", table, "--rename", "value:v"],
        ["run", str(pipeline)],
        ["entity-merge", str(tmp_path / "spec.json"), "--datasets", str(tmp_path),
         "--output", f"{table}3"],
        ["vacuum", table, "--retain", "0", "--grace", "0"],
    ):  # fmt: skip
        assert run(call) == 0, call
    endings = {r.key.rpartition(".")[2] for r in creations(s3_server)}
    expected = {"json", "arrow", "frag", "skips", "deletes", "memo", "conditional-writes"}
    assert endings == expected
    assert_all_ask_for_it(s3_server)


def test_a_session_whose_tasks_would_not_encrypt_is_refused() -> None:
    spark = cast("Any", FakeSpark())  # its tasks have the environment of this process
    check_tasks_have(spark, {})
    with refuses(UsageError):
        check_tasks_have(spark, {"COMPACTOR_S3_SSE": "AES256"})


@pytest.mark.usefixtures("kms")
def test_a_session_whose_tasks_encrypt_alike_is_taken() -> None:
    check_tasks_have(cast("Any", FakeSpark()), KMS)


_ON_SPARK = """
import json, os, sys
from pyspark import SparkContext
SparkContext._ensure_initialized()  # so the environment of Spark's own process has none of it
environment, *calls = json.loads(sys.argv[1])
os.environ.update(environment)
from compactor.cli.main import run
sys.exit(max(run(call) for call in calls))
"""


@pytest.mark.spark
def test_tasks_of_spark_encrypt_too(s3_server: S3Server, s3_bucket: str, tmp_path: Path) -> None:
    table, files = f"s3://{s3_bucket}/t", write_inputs(tmp_path)
    for file in files:
        assert run(["ingest", table, file, "--sort-by", "service,ts"]) == 0
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(pipeline.read_text().replace("TABLE", f"{table}2"))
    s3_server.reset()
    calls = [
        ["compact", table, "--strategy", "full", "--master", "local[2]"],
        ["run", str(pipeline), "--master", "local[2]", "--staging", f"s3://{s3_bucket}/staging"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", _ON_SPARK, json.dumps([KMS, *calls])],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if not k.startswith("COMPACTOR_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    folders = {"/".join(r.key.split("/")[:2]) for r in creations(s3_server)}
    assert {"t/data", "t/_log", "t2/data", "t2/_log"} <= folders
    assert_all_ask_for_it(s3_server)
