"""Keys and passwords are in nothing that is printed, logged or stored."""

from __future__ import annotations

import json
import os
import pickle
import threading
from pathlib import Path

import boto3
import pyarrow.parquet as pq
import pytest

from compactor import Table
from compactor.cli import watch
from compactor.cli.main import cli, run
from compactor.compaction import worker
from compactor.errors import StoreError, UsageError
from compactor.stores import obstore_store
from compactor.stores.open import open_store
from compactor.telemetry.events import Event
from tests.faults import Refuse, calls
from tests.support.gcs_server import GcsServer
from tests.support.s3_server import S3Server, answering
from tests.support.tables import log_rows
from tests.support.wording import refuses

CANARY = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYcanary"
ADDRESSES = {
    "keys in an address": f"s3://AKIAIOSFODNN7:{CANARY}@bucket/t",
    "a token in an address": f"s3://{CANARY.replace('/', '-')}@bucket/t",
    "a password": f"https://me:{CANARY}@host:9000/bucket",
    "a presigned address": f"https://b.s3.amazonaws.com/t?X-Amz-Signature={CANARY}&X-Amz-Date=1",
    "a password with blanks": f"https://me:pass word {CANARY}@host:9000/bucket",
    "a key in an address of Google": f"gs://{CANARY.replace('/', '-')}@bucket/t",
    "a key as a container": f"abfss://{CANARY.replace('/', '-')}@account.dfs.core.windows.net/t",
    "a password of a file server": f"file://me:{CANARY}@host/t",
}


def command_lines(table: str, folder: Path) -> dict[str, list[str]]:
    pq.write_table(log_rows(20, 1), folder / "in.parquet")
    (folder / "d.ndjson").write_text('{"_id": "1"}\n')
    (folder / "spec.json").write_text('{"version": 2, "datasets": ["d d"]}')
    (folder / "pipeline.yaml").write_text(
        f"nodes:\n  in: {{source: {{path: '{folder}/in.parquet'}}}}\n"
        f"  out: {{output: {{input: in, table: '{table}', sort_by: id}}}}\n"
    )
    spec = [str(folder / "spec.json"), "--datasets", str(folder)]
    return {
        "ingest": [table, str(folder / "in.parquet"), "--sort-by", "service,ts"],
        "compact": [table, "--strategy", "full", "--master", "in-process", "--json"],
        "export": [table, str(folder / "out.parquet")],
        "changes": [table, "--since", "0", "--reader", "loader"],
        "head": [table],
        "publish": [table, str(folder / "lake"), "--as", "parquet"],
        "query": [table, "--where", "id = '1'"],
        "run": [str(folder / "pipeline.yaml")],
        "entity-merge": [*spec, "--output", table],
        "alter": [table, "--drop", "value"],
        "delete": [table, "--where", "id = '1'"],
        "update": [table, "--where", "id = '1'", "--set", "id = '2'"],
        "inspect": [table],
        "report": [table, "-o", str(folder / "report.html")],
        "templates": [table, "message"],
        "verify": [table],
        "wait": [table],
        "restore": [table, "--version", "1"],
        "undo": [table, "abc"],
        "tag": [table, "first"],
        "tags": [table],
        "untag": [table, "first"],
        "vacuum": [table],
        "repair": [table],
        "release": [table, "--all"],
        "quarantine": [table, "data/a.frag"],
        "drop-fragment": [table, "data/a.frag", "--lose-rows"],
        "watch": [table, "--master", "in-process"],
    }


ADDRESSED = sorted(set(cli.commands) - {"sample", "simulate"})
COMMANDS = sorted({*ADDRESSED} - {"watch"})
"""Those that end when a store fails."""


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
@pytest.mark.parametrize("command", ADDRESSED)
def test_no_command_repeats_a_secret_in_an_address(
    command: str, address: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([command, *command_lines(address, tmp_path)[command]]) == 2
    said = capfd.readouterr()
    assert said.err.count("\n") == 1, said.err
    assert (
        ": an address must not have keys" in said.err
        or ": no store for https: addresses" in said.err
    )
    assert CANARY[-12:] not in said.out + said.err


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_repeats_a_secret_in_the_endpoint(
    command: str,
    s3_server: S3Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    secret = CANARY.replace("/", "-")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint_url.replace("//", f"//me:{secret}@"))
    assert run([command, *command_lines("s3://bucket/t", tmp_path)[command]]) == 2
    said = capfd.readouterr()
    assert "AWS_ENDPOINT_URL has a user or a password in it" in said.err
    assert CANARY[-12:] not in said.out + said.err


def answer_with_our_key(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The body of a server's error that repeats the key, which is this process's from now on."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    return f"<Error><Code>Bad</Code><Message>signed with {CANARY}</Message></Error>".encode()


@pytest.mark.long
@pytest.mark.parametrize("status", ["403 Forbidden", "400 Bad Request", "501 Not Implemented"])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_repeats_a_secret_that_the_server_tells(
    command: str,
    status: str,
    s3_server: S3Server,
    s3_bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    body = answer_with_our_key(monkeypatch)
    s3_server.faults.add(Refuse(answering(status, body)))
    assert run([command, *command_lines(f"s3://{s3_bucket}/t", tmp_path)[command]]) == 4
    said = capfd.readouterr()
    place = f"{tmp_path}/pipeline.yaml, line 3: node 'out': " if command == "run" else ""
    assert said.err.startswith(f"compactor: error: {place}s3://")
    assert CANARY not in said.out + said.err


@pytest.fixture
def watch_ends_at_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on whatever its tables do, until it is told to stop: its first `error` tells it."""
    stops: list[threading.Event] = []
    sinks = watch._sinks

    def end(event: Event) -> None:
        if event.name == "error":
            stops[-1].set()

    monkeypatch.setattr(watch, "_stop_on_signals", stops.append)
    monkeypatch.setattr(watch, "_sinks", lambda *, as_json: [*sinks(as_json=as_json), end])


WATCHES = [[], ["--json"], ["--log-format", "json"]]


@pytest.mark.usefixtures("watch_ends_at_an_error")
@pytest.mark.parametrize("options", WATCHES)
def test_watch_repeats_no_secret_in_the_endpoint(
    options: list[str],
    s3_server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    secret = CANARY.replace("/", "-")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint_url.replace("//", f"//me:{secret}@"))
    assert run(["watch", "s3://bucket/t", "--master", "in-process", *options]) == 0
    said = capfd.readouterr()
    assert "AWS_ENDPOINT_URL has a user or a password in it" in said.out + said.err
    assert CANARY[-12:] not in said.out + said.err


@pytest.mark.usefixtures("watch_ends_at_an_error")
@pytest.mark.parametrize("options", WATCHES)
def test_watch_repeats_no_secret_that_the_server_tells(
    options: list[str],
    s3_server: S3Server,
    s3_bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    body = answer_with_our_key(monkeypatch)
    s3_server.faults.add(Refuse(answering("400 Bad Request", body)))
    assert run(["watch", f"s3://{s3_bucket}/t", "--master", "in-process", *options]) == 0
    said = capfd.readouterr()
    assert "refused (400)" in said.out + said.err
    assert CANARY not in said.out + said.err


@pytest.mark.long
def test_a_failed_compaction_stores_no_secret(
    s3_server: S3Server,
    s3_bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The reason is printed, told by the report, and may come into the log."""
    monkeypatch.setattr(worker, "_backoff_seconds", lambda failures: 0.0)
    table = f"s3://{s3_bucket}/t"
    for number in range(2):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(log_rows(20, number), path)
        assert run(["ingest", table, str(path), "--sort-by", "service,ts"]) == 0
    body = answer_with_our_key(monkeypatch)
    data = calls("GET", where=lambda request: "/data/" in request.key)
    s3_server.faults.add(Refuse(answering("400 Bad Request", body)), at=data)
    assert run(["compact", table, "--strategy", "full", "--master", "in-process", "--json"]) == 1
    said = capfd.readouterr()
    assert "refused (400)" in said.out
    assert "refused (400)" in said.err
    assert run(["report", table, "--json"]) == 0
    report = capfd.readouterr().out
    assert "refused (400)" in str(json.loads(report)["columns"]["unreadable"])
    assert CANARY not in report
    s3_server.faults.clear()
    assert run(["inspect", table]) == 0
    assert CANARY not in capfd.readouterr().out
    client = boto3.client("s3", endpoint_url=s3_server.endpoint_url)
    stored = b"".join(
        client.get_object(Bucket=s3_bucket, Key=item["Key"])["Body"].read()
        for item in client.list_objects_v2(Bucket=s3_bucket)["Contents"]
    )
    assert CANARY.encode() not in stored
    assert CANARY not in said.out + said.err


SECRETS_OF_CLOUDS = {
    "a signature of Azure": (
        "az://container/t",
        {
            "AZURE_STORAGE_ACCOUNT_NAME": "account",
            "AZURE_STORAGE_SAS_TOKEN": f"sv=2024-01-01&sig={CANARY}",
            "AZURE_ENDPOINT": "http://127.0.0.1:9/account",
        },
    ),
    "a signature of Azure in the address": (f"az://container/t?sv=2024-01-01&sig={CANARY}", {}),
    "a key of Azure that is none": (
        "az://container/t",
        {"AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_STORAGE_ACCOUNT_KEY": f"not {CANARY}"},
    ),
    "a password of Azure's server": (
        "az://container/t",
        {
            "AZURE_STORAGE_ACCOUNT_NAME": "account",
            "AZURE_STORAGE_ACCOUNT_KEY": "a2V5",
            "AZURE_ENDPOINT": f"http://me:{CANARY.replace('/', '-')}@127.0.0.1:9/account",
        },
    ),
    "a key of Google that is none": (
        "gs://bucket/t",
        {"GOOGLE_SERVICE_ACCOUNT_KEY": f'{{"private_key": "{CANARY}"}}'},
    ),
}


@pytest.mark.parametrize("secret", SECRETS_OF_CLOUDS)
@pytest.mark.parametrize("command", ["ingest", "inspect", "run"])
def test_no_command_repeats_a_secret_of_google_or_azure(
    command: str,
    secret: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    address, settings = SECRETS_OF_CLOUDS[secret]
    monkeypatch.setattr(obstore_store, "_RETRIES", 0)
    for name in os.environ:
        if name.startswith(("GOOGLE_", "AZURE_")):
            monkeypatch.delenv(name)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert run([command, *command_lines(address, tmp_path)[command]]) in (2, 4)
    said = capfd.readouterr()
    assert said.err.count("\n") == 1, said.err
    assert CANARY[-12:] not in said.out + said.err


@pytest.mark.parametrize("status", ["403 Forbidden", "400 Bad Request"])
def test_no_command_repeats_a_token_that_googles_server_tells(
    status: str,
    gcs_server: GcsServer,
    gcs_bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", CANARY)
    body = f"<Error><Code>Bad</Code><Message>signed with {CANARY}</Message></Error>".encode()
    gcs_server.faults.add(Refuse(answering(status, body)))
    address = f"gs://{gcs_bucket}/t"
    assert run(["inspect", *command_lines(address, tmp_path)["inspect"]]) == 4
    said = capfd.readouterr()
    assert said.err.startswith(f"compactor: error: {address}")
    assert CANARY not in said.out + said.err


def test_the_endpoint_is_refused_by_the_library_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://me:pw@127.0.0.1:1")
    with refuses(UsageError) as caught:
        open_store("s3://bucket/t").read("k")
    assert "pw" not in str(caught.value).replace("password", "")


def test_exceptions_of_the_library_repeat_no_secret_that_the_server_tells(
    s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = answer_with_our_key(monkeypatch)
    s3_server.faults.add(Refuse(answering("400 Bad Request", body)))
    with refuses(StoreError) as caught:
        Table.open(f"s3://{s3_bucket}/t")
    assert CANARY not in repr(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))  # as Spark's tasks send it
    assert str(again) == str(caught.value)


def test_a_proxys_password_is_in_no_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:Corr3ct-h0rse@127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://s3.example.com")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(StoreError) as caught:
        open_store("s3://bucket/t").read("k")
    assert "Corr3ct-h0rse" not in repr(caught.value)


def test_tls_is_verified_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no switch for it: a CA of one's own is named by AWS_CA_BUNDLE."""
    for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_VERIFY_SSL", "PYTHONHTTPSVERIFY", "CURL_INSECURE"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://127.0.0.1:1")
    store = open_store("s3://bucket/t")
    client = store._clients.retrying()  # type: ignore[attr-defined]
    assert client._endpoint.http_session._verify is True
    monkeypatch.setenv("AWS_CA_BUNDLE", "/no/such/bundle.pem")
    with pytest.raises(StoreError):
        open_store("s3://bucket/t").read("k")
