"""A long-running worker as Prometheus and Kubernetes meet it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families

from compactor.stores.local import LocalStore
from tests.support.tables import ingest_tables, log_rows

ROOT = Path(__file__).parents[2]


class Watch:
    """`compactor watch` in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log
        self.port = self.until("watching")["metrics_port"]

    def until(self, event: str) -> dict[str, Any]:
        """The next event of that name on stdout."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said: dict[str, Any] = json.loads(line)
            if said["event"] == event:
                return said
        raise AssertionError(f"it ended without {event!r}: {self._log.read_text()}")

    def logged(self) -> list[dict[str, Any]]:
        """What went to stderr."""
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    def ask(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}{path}", timeout=20
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metrics(self) -> dict[tuple[str, frozenset[str]], float]:
        """Samples by name and the values of labels, those of `table` left out."""
        families = text_string_to_metric_families(self.ask("/metrics")[1])
        return {
            (s.name, frozenset(v for k, v in s.labels.items() if k != "table")): s.value
            for family in families
            for s in family.samples
        }


WAITING = """
import os, time
from compactor.cli.main import main
from compactor.stores.local import LocalStore
open_stream = LocalStore.open_stream
def waiting(store, key, **options):
    while key == {key!r} and not os.path.exists({gate!r}):
        time.sleep(0.01)
    return open_stream(store, key, **options)
LocalStore.open_stream = waiting
main()
"""


@contextmanager
def watching(
    folder: Path, *options: str, program: Sequence[str] = ("-m", "compactor.cli.main")
) -> Iterator[Watch]:
    with watching_tables(
        folder, str(folder / "t"), "--poll", "0.1s", *options, program=program
    ) as watch:
        yield watch


@contextmanager
def watching_tables(
    folder: Path, *words: str, program: Sequence[str] = ("-m", "compactor.cli.main")
) -> Iterator[Watch]:
    log = folder / "stderr"
    command = [sys.executable, *program, "watch"]
    with log.open("w") as stderr, subprocess.Popen(
        [*command, *words, "--master", "in-process", "--json", "--metrics-port", "0"],
        stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=ROOT, env={**os.environ},
    ) as process:  # fmt: skip
        try:
            yield Watch(process, log)
        finally:
            process.kill()


def test_a_worker_serves_metrics_and_probes_until_it_is_told_to_stop(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    tables = [log_rows(200, seed) for seed in range(4)]
    ingest_tables(store, tables, tmp_path)
    with watching(tmp_path, "--log-format", "json", "--metrics-address", "127.0.0.1") as watch:
        committed = watch.until("committed")
        assert watch.ask("/healthz") == (200, "ok\n")
        assert watch.ask("/readyz") == (200, "ok\n")
        told = watch.metrics()
        done = frozenset({"done"})
        assert told["compactor_compactions_total", done] == 1
        assert told["compactor_input_rows_total", frozenset()] == 800
        assert told["compactor_store_gets_total", frozenset({"task"})] == 4
        assert told["process_resident_memory_bytes", frozenset()] > 10 << 20
        # Another round: what is served follows the table.
        ingest_tables(store, tables, tmp_path)
        version = watch.until("committed")["version"]
        assert version > committed["version"]
        assert watch.metrics()["compactor_compactions_total", done] == 2
        while watch.metrics()["compactor_table_version", frozenset()] < version:
            assert watch.process.poll() is None
        watch.process.send_signal(signal.SIGTERM)
        assert watch.until("stopped")["done"] == 2
        assert watch.process.wait(30) == 0
        lines = watch.logged()
    assert [line["event"] for line in lines if line["logger"] == "compactor.telemetry.events"] == [
        "watching", "compacting", "committed", "compacting", "committed", "stopped",
    ]  # fmt: skip
    ids = {line["compaction_id"] for line in lines if line["event"] == "attempt ended"}
    assert ids == {line["compaction_id"] for line in lines if line["event"] == "committed"}


def test_a_worker_keeps_a_copy_up_to_date(tmp_path: Path) -> None:
    ingest_tables(LocalStore(tmp_path / "t"), [log_rows(200, seed) for seed in range(4)], tmp_path)
    copy = tmp_path / "copy"
    with watching(tmp_path, "--publish", str(copy), "--as", "parquet") as watch:
        while (said := watch.until("published"))["files"] != 1:
            assert said["rows"] == 800
        watch.process.send_signal(signal.SIGTERM)
        assert watch.process.wait(30) == 0
    [file] = copy.glob("*.parquet")
    assert pq.read_table(file).num_rows == 800


def test_while_it_drains_it_is_alive_and_not_ready(tmp_path: Path) -> None:
    """The compaction waits for a file before it reads a fragment, until the test writes it."""
    store = LocalStore(tmp_path / "t")
    log = ingest_tables(store, [log_rows(200, seed) for seed in range(4)], tmp_path)
    gate = tmp_path / "gate"
    program = WAITING.format(key=log.latest.by_age()[0].key, gate=str(gate))
    with watching(tmp_path, program=["-c", program]) as watch:
        watch.until("compacting")
        watch.process.send_signal(signal.SIGTERM)
        while watch.ask("/readyz")[1] != "draining: no new compaction begins\n":
            assert watch.process.poll() is None
        assert watch.ask("/healthz") == (200, "ok\n")
        assert watch.metrics()["compactor_inflight_compactions", frozenset()] == 1
        gate.touch()
        watch.until("stopped")
        assert watch.process.wait(30) == 0


def test_a_port_in_use_ends_it_before_anything_is_begun(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    ingest_tables(store, [log_rows(10, 1)], tmp_path)
    with watching(tmp_path) as watch:
        command = [sys.executable, "-m", "compactor.cli.main", "watch", str(tmp_path / "t")]
        done = subprocess.run(
            [*command, "--metrics-port", str(watch.port)],
            capture_output=True, text=True, check=False, cwd=ROOT,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"compactor: error: --metrics-port {watch.port}: cannot listen on")


@pytest.mark.spark
def test_counters_and_log_lines_of_spark_executors_are_those_of_their_tasks(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "t")
    ingest_tables(store, [log_rows(200, seed) for seed in range(4)], tmp_path)
    file = tmp_path / "x.prom"
    done = subprocess.run(
        [sys.executable, "-m", "compactor.cli.main", "compact", store.url, "--strategy", "full", "--json",
         "--master", "local[1]", "--log-format", "json", "--metrics-textfile", str(file)],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    ended = next(line for line in lines if line["event"] == "attempt ended")
    committed = next(line for line in lines if line["event"] == "committed")
    assert ended["attempt_id"] == committed["attempt_id"]
    assert ended["compaction_id"] == committed["compaction_id"]
    assert ended["rows_in"] == report["rows_in"] == 800
    samples = {
        (s.name, s.labels.get("role")): s.value
        for family in text_string_to_metric_families(file.read_text())
        for s in family.samples
    }
    assert samples["compactor_store_gets_total", "task"] == report["gets"] == 4
    assert samples["compactor_read_bytes_total", "task"] == report["bytes_in"]
    assert samples["compactor_input_rows_total", None] == 800


FLEET = """\
poll: 1s
report_every: 1s
tables:
  - at: lake/*
    vacuum: {every: 1s}
    publish: {to: "copies/{table}", as: parquet}
"""


def test_a_fleet_is_compacted_vacuumed_and_published_as_its_file_says(tmp_path: Path) -> None:
    tables = [log_rows(200, seed) for seed in range(4)]
    for name in "ab":
        ingest_tables(LocalStore(tmp_path / "lake" / name), tables, tmp_path)
    config = tmp_path / "fleet.yaml"
    config.write_text(FLEET)
    with watching_tables(tmp_path, "--config", str(config)) as watch:
        assert {watch.until("committed")["table"][-1] for _ in "ab"} == set("ab")
        while watch.until("published")["files"] != 1:
            pass
        while watch.until("vacuumed")["version"] < 6:
            pass
        told = watch.metrics()
        assert told["compactor_run_success", frozenset({"vacuum"})] == 1
        assert told["compactor_waiting_seconds", frozenset()] >= 0
        states = json.loads(watch.ask("/tables")[1])
        assert [state["entry"] for state in states] == [str(tmp_path / "lake/*")] * 2
        # The file changes; what is wrong is told, and what was read goes on.
        config.write_text("tables: []")
        assert "fleet.yaml" in watch.until("error")["reason"]
        config.write_text(FLEET.replace("lake/*", "lake/a"))
        assert watch.until("reloaded")["entries"] == 1
        assert watch.until("left")["table"] == str(tmp_path / "lake/b")
        watch.process.send_signal(signal.SIGTERM)
        assert watch.until("stopped")["failed"] == 0
        assert watch.process.wait(30) == 0
    assert {path.name for path in (tmp_path / "copies").iterdir()} >= {"a"}
