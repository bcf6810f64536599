"""Metrics of commands that end: a file for node exporter, a Pushgateway."""

from __future__ import annotations

import base64
import contextlib
import json
import socketserver
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families

from compactor import Table
from compactor.cli.main import run
from compactor.files.staging import StagedFile
from compactor.stores.local import LocalStore
from compactor.table.commit_log import CommitLog
from compactor.telemetry.metrics.publish import PASSWORD_VARIABLE, PushError, check_push, push
from compactor.telemetry.metrics.registry import MetricsRegistry
from tests.support.tables import log_rows
from tests.support.wording import refuses, says

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples_of(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def sample(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((f"compactor_{name}", frozenset(labels.items())))


class Gateway:
    """As much of a Pushgateway as it takes to see what comes."""

    def __init__(self, status: str = "202 Accepted") -> None:
        self.status = status
        self.pushes: list[dict[str, Any]] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        self.pushes.append(
            {
                "method": environ["REQUEST_METHOD"],
                "path": environ["PATH_INFO"],
                "authorization": environ.get("HTTP_AUTHORIZATION"),
                "samples": samples_of(environ["wsgi.input"].read(length).decode()),
            }
        )
        start_response(self.status, [("Content-Length", "0")])
        return [b""]


@contextmanager
def gateway(status: str = "202 Accepted") -> Iterator[tuple[Gateway, int]]:
    app = Gateway(status)
    with make_server("127.0.0.1", 0, app, handler_class=Silent) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield app, server.server_port
        finally:
            server.shutdown()
            thread.join()


class Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = [tmp_path / f"{seed}.parquet" for seed in range(4)]
    for seed, path in enumerate(paths):
        pq.write_table(log_rows(200, seed), path)
    return [str(path) for path in paths]


def ingest(table: Path, files: list[str], *options: str) -> int:
    apart = ["--rows-per-fragment", "200"]  # as many as a file has
    return run(["ingest", str(table), *files, "--sort-by", "service,ts:desc", *apart, *options])


def test_batch_commands_leave_a_file_that_says_what_they_did(
    tmp_path: Path, files: list[str], capfd
) -> None:
    table, file = tmp_path / "t", tmp_path / "compactor.prom"
    options = ["--metrics-textfile", str(file)]
    assert ingest(table, files, *options) == 0
    said = samples_of(file.read_text())
    url = str(table)
    assert sample(said, "ingested_rows_total", table=url) == 800
    assert sample(said, "ingested_files_total", table=url) == 4
    assert sample(said, "commits_total", table=url, operation="ingest") == 1
    sizes = sum(path.stat().st_size for path in table.rglob("*") if path.is_file())
    assert sample(said, "written_bytes_total", table=url, role="driver") == sizes
    compact = ["compact", url, "--strategy", "full", "--master", "in-process", *options]
    assert run(compact) == 0
    said = samples_of(file.read_text())
    assert sample(said, "ingested_rows_total", table=url) is None  # of another run
    assert sample(said, "input_rows_total", table=url) == 800
    assert sample(said, "run_success", table=url, command="compact") == 1
    assert sample(said, "level_fragments", table=url, level="1") == 1
    assert run(compact) == 0  # nothing is due: the table's figures are told all the same
    said = samples_of(file.read_text())
    assert sample(said, "input_rows_total", table=url) == 0
    assert sample(said, "level_fragments", table=url, level="1") == 1
    capfd.readouterr()
    assert run(["vacuum", url, "--grace", "0", "--retain", "0", "--json", *options]) == 0
    said = samples_of(file.read_text())
    assert sample(said, "vacuumed_objects_total", table=url, kind="fragment") == 4
    assert list(tmp_path.glob("*.prom*")) == [file]


def test_a_run_that_fails_says_so_and_keeps_when_the_last_good_one_was(
    tmp_path: Path, files: list[str], capfd
) -> None:
    table, file = tmp_path / "t", tmp_path / "compactor.prom"
    options = ["--metrics-textfile", str(file)]
    assert ingest(table, files, *options) == 0
    name, of_run = "last_success_timestamp_seconds", "run_last_success_timestamp_seconds"
    said = samples_of(file.read_text())
    before = sample(said, name, table=str(table))
    run_before = sample(said, of_run, table=str(table), command="ingest")
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(b"nothing of the kind")
    assert ingest(table, [files[0], str(bad)], *options) == 3
    said = samples_of(file.read_text())
    assert sample(said, "run_success", table=str(table), command="ingest") == 0
    assert sample(said, "ingested_files_total", table=str(table)) == 1
    assert before and run_before
    assert sample(said, name, table=str(table)) == before
    assert sample(said, of_run, table=str(table), command="ingest") == run_before


def test_a_run_of_which_a_part_failed_is_no_success(tmp_path: Path, capfd) -> None:
    table, file = tmp_path / "t", tmp_path / "compactor.prom"
    for number, start in enumerate([0, 0, 1000, 1000]):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"id": range(start, start + 50)}), path)
        assert run(["ingest", str(table), str(path), "--sort-by", "id"]) == 0
    damaged = CommitLog(LocalStore(table)).current().by_age()[-1]
    (table / damaged.key).write_bytes(b"")
    name = "last_success_timestamp_seconds"
    file.write_text(f'compactor_{name}{{table="{table}"}} 12345.0\n')
    compact = ["compact", str(table), "--strategy", "overlapping", "--master", "in-process"]
    assert run([*compact, "--metrics-textfile", str(file)]) == 1
    said = samples_of(file.read_text())
    assert sample(said, "compactions_total", table=str(table), outcome="done") == 1
    assert sample(said, "run_success", table=str(table), command="compact") == 0
    assert sample(said, name, table=str(table)) == 12345


def test_pipelines_tell_their_records_and_bad_ones(tmp_path: Path, capfd) -> None:
    (tmp_path / "in.ndjson").write_text('{"a": 1}\n{"a": 2}\n')
    pipeline, file = tmp_path / "p.yaml", tmp_path / "p.prom"
    pipeline.write_text(
        f"nodes:\n  in: {{source: {{path: {tmp_path / 'in.ndjson'}}}}}\n"
        f"  out: {{output: {{input: in, path: {tmp_path / 'out.ndjson'}}}}}\n"
    )
    assert run(["run", str(pipeline), "--metrics-textfile", str(file)]) == 0
    said = samples_of(file.read_text())
    assert sample(said, "read_records_total", table=str(pipeline), node="in") == 2
    assert sample(said, "written_records_total", table=str(pipeline), node="out") == 2
    assert sample(said, "bad_records_total", table=str(pipeline)) == 0


def test_entity_merges_tell_their_entities(tmp_path: Path, capfd) -> None:
    (tmp_path / "crm.ndjson").write_text('{"_id": "1", "email": "a@x"}\n')
    (tmp_path / "shop.ndjson").write_text('{"_id": "2", "mail": "a@x"}\n')
    spec, file = tmp_path / "s.yaml", tmp_path / "e.prom"
    spec.write_text("datasets: [crm c, shop s]\nequality: [[eq, c.email, s.mail]]\n")
    command = ["entity-merge", str(spec), "--datasets", str(tmp_path), "--output", f"{tmp_path}/t"]
    assert run([*command, "--metrics-textfile", str(file)]) == 0
    said = samples_of(file.read_text())
    kinds = {"read": 2, "merged": 1, "new": 1, "changed": 0, "replaced": 0, "unchanged": 0}
    for kind, count in kinds.items():
        assert sample(said, "entities_total", table=f"{tmp_path}/t", kind=kind) == count


def test_metrics_of_a_fleets_vacuum_keep_the_labels_of_their_tables(tmp_path: Path) -> None:
    Table.create(tmp_path / "lake" / "a", pa.table({"id": [1]}), "id")
    fleet = tmp_path / "f.yaml"
    fleet.write_text("tables: [{at: lake/*}]")
    with gateway() as (app, port):
        url = f"http://127.0.0.1:{port}"
        assert run(["vacuum", "--config", str(fleet), "--metrics-push", url]) == 0
    (push,) = app.pushes
    assert "table" not in push["path"], "a label of the group would take the place of each table's"
    table = f"{tmp_path}/lake/a"
    assert sample(push["samples"], "run_success", table=table, command="vacuum") == 1


def test_metrics_are_pushed_into_the_group_of_command_and_table(
    tmp_path: Path, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "s3cr/et")
    with gateway() as (app, port):
        url = f"http://jo%40e@127.0.0.1:{port}/base/"
        assert ingest(tmp_path / "t", files, "--metrics-push", url) == 0
    (push,) = app.pushes
    assert push["method"] == "POST"  # of what is not pushed, the old value stays
    base, *group = unquote(push["path"]).split("/metrics/job/compactor/")
    assert base == "/base"
    table = base64.urlsafe_b64encode(str(tmp_path / "t").encode()).decode()
    assert group == [f"command/ingest/table@base64/{table}"]
    assert push["authorization"] == "Basic " + base64.b64encode(b"jo@e:s3cr/et").decode()
    assert sample(push["samples"], "ingested_rows_total", table=str(tmp_path / "t")) == 800


@pytest.mark.parametrize("written", ["pw of a file", "pw of a file\n", "pw of a file\r\n"])
def test_the_password_of_a_file_goes_before_that_of_the_environment(
    tmp_path: Path, files: list[str], monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "another")
    file = tmp_path / "password"
    file.write_bytes(written.encode())
    with gateway() as (app, port):
        options = ["--metrics-push", f"http://joe@127.0.0.1:{port}"]
        options += ["--metrics-push-password-file", str(file)]
        assert ingest(tmp_path / "t", files, *options) == 0
    (push,) = app.pushes
    assert push["authorization"] == "Basic " + base64.b64encode(b"joe:pw of a file").decode()


@pytest.mark.parametrize("content", [None, b"", b"\n", b"two\nlines\n", b"\xff", b"a" * 5000])
def test_a_file_without_a_password_is_refused_and_not_repeated(
    tmp_path: Path, capfd, content: bytes | None
) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    options = ["--metrics-push", "http://joe@h", "--metrics-push-password-file", str(file)]
    assert run(["vacuum", "no-table", *options]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    says(line)
    assert "lines" not in line
    assert "aaaa" not in line


def test_a_password_in_the_call_is_refused_and_not_repeated(capfd) -> None:
    assert run(["vacuum", "no-table", "--metrics-push", "http://joe:s3cret99@h"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    says(line)
    assert "s3cret99" not in line


def test_a_password_without_a_user_or_an_address_is_refused(
    tmp_path: Path, capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := tmp_path / "password").write_text("s3cret99")
    by_file = ["--metrics-push-password-file", str(file)]
    assert run(["vacuum", "no-table", "--metrics-push", "http://h", *by_file]) == 2
    says(capfd.readouterr().err)
    assert run(["vacuum", "no-table", *by_file]) == 2
    says(capfd.readouterr().err)
    monkeypatch.setenv(PASSWORD_VARIABLE, "s3cret99")
    assert run(["vacuum", "no-table", "--metrics-push", "http://h"]) == 2
    says(capfd.readouterr().err)


def test_a_push_that_fails_is_a_warning_without_the_password(
    tmp_path: Path, files: list[str], capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "s3cret99")
    with gateway("503 Service Unavailable") as (_, port):
        url = f"http://joe@127.0.0.1:{port}"
        assert ingest(tmp_path / "t", files, "--metrics-push", url) == 0
    # Nobody listens there any more.
    assert ingest(tmp_path / "t", files, "--metrics-push", url) == 0
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    for line, reason in zip(lines, ("503", "refused"), strict=True):
        assert line.startswith(f"compactor: warning: --metrics-push http://127.0.0.1:{port}:")
        assert reason in line
        assert "s3cret99" not in line


class Answer(socketserver.StreamRequestHandler):
    """Takes a request, and answers with bytes of any kind."""

    def handle(self) -> None:
        length = 0
        while (line := self.rfile.readline()).strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        self.rfile.read(length)
        with contextlib.suppress(OSError):
            for part in self.server.parts:  # type: ignore[attr-defined]
                self.wfile.write(part)


@contextmanager
def answering(parts: Iterable[bytes]) -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        server.parts = parts  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_a_gateway_that_never_comes_to_an_end_is_given_up() -> None:
    """Each of its bytes comes in time."""
    is_over = threading.Event()

    def drops() -> Iterator[bytes]:
        while not is_over.wait(0.01):
            yield b"H"

    with answering(drops()) as port:
        try:
            with refuses(PushError):
                push(f"http://127.0.0.1:{port}", MetricsRegistry().prometheus, {}, None, 0.2)
        finally:
            is_over.set()


def test_what_a_gateway_answers_forges_no_line_and_repeats_no_password(
    tmp_path: Path, files: list[str], capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "s3cr/et")
    token = base64.b64encode(b"joe:s3cr/et").decode()
    status = f"HTTP/1.1 500 a\0b\rcompactor: error: FAKE {token} s3cr/et s3cr%2Fet"
    with answering([status.encode(), b"\r\nContent-Length: 0\r\n\r\n"]) as port:
        url = f"http://joe@127.0.0.1:{port}"
        assert ingest(tmp_path / "t", files, "--metrics-push", url) == 0
    err = capfd.readouterr().err
    (line,) = err.splitlines()
    assert line.endswith("metrics were not pushed (HTTP status 500)")
    assert not {"\0", "\r"} & set(err)


ODD_ADDRESSES = [
    "http://user:pa hunter22@127.0.0.1:9",
    "http://user:pa/hunter22@127.0.0.1:9",
    "http://user:12/hunter22@127.0.0.1:9",
    "http://user:pa?hunter22@127.0.0.1:9",
    "http://user:1#hunter22@127.0.0.1:9",
    "http://user:pa\nhunter22@127.0.0.1:9",
    "user:hunter22@127.0.0.1:9091",
    "http://user:hunter22",
    "http://user:hunter22@",
    "http://[::1",
    "http://host:99999",
    "http://host:0",
    "http://host:port",
    "http://:9091",
    "https://",
]


@pytest.mark.parametrize("shape", ["text", "json"])
@pytest.mark.parametrize("address", ODD_ADDRESSES)
def test_an_address_to_push_to_that_cannot_be_is_refused_and_not_repeated(
    capfd, address: str, shape: str
) -> None:
    assert run(["vacuum", "no-table", "--metrics-push", address, "--log-format", shape]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    says(json.loads(line)["reason"] if shape == "json" else line)
    assert "hunter22" not in line


@pytest.mark.parametrize(
    "address",
    ["http://h", "https://h:1/base/", "http://[::1]:9091", "http://u@h", "http://u%40q@[::1]:1"],
)
def test_an_address_to_push_to_may_have_port_path_and_user(address: str) -> None:
    check_push(address)


@pytest.mark.parametrize(
    "command",
    [
        ["compact", "t"],
        ["vacuum", "t"],
        ["ingest", "t", "f.parquet"],
        ["run", "p.yaml"],
        ["entity-merge", "s.yaml", "--datasets", ".", "--output", "t"],
    ],
    ids=lambda command: command[0],
)
def test_wrong_values_of_metrics_options_are_lines_of_json_where_that_is_asked_for(
    command: list[str], capfd
) -> None:
    options = ["--metrics-textfile", "/no/such/x.prom", "--log-format", "json"]
    assert run([*command, *options]) == 2
    says(json.loads(capfd.readouterr().err)["reason"])


@pytest.mark.parametrize(
    "options",
    [
        ["--metrics-textfile", "x.txt"],
        ["--metrics-textfile", "no/such/x.prom"],
        ["--metrics-push", "gateway:9091"],
        ["--metrics-push", "ftp://u:hidden77@host"],
    ],
    ids=" ".join,
)
def test_targets_that_cannot_be_are_refused_before_anything_is_done(
    tmp_path: Path, files: list[str], capfd, options: list[str]
) -> None:
    assert ingest(tmp_path / "t", files, *options) == 2
    (line,) = capfd.readouterr().err.splitlines()
    says(line)
    assert not (tmp_path / "t").exists()


def test_a_file_that_cannot_be_written_is_a_warning(
    tmp_path: Path, files: list[str], capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_name: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(StagedFile, "seal", full)
    file = tmp_path / "x.prom"
    assert ingest(tmp_path / "t", files, "--metrics-textfile", str(file)) == 0
    (line,) = capfd.readouterr().err.splitlines()
    says(line)
